# Workers that compute, on the CPU and on CUDA: docker build -f deploy/images/headway-worker.Dockerfile -t headway-worker:0.1.0 .
# The torch of requirements.lock brings CUDA's libraries along; the node brings the driver.
ARG COMPILERS=python:3.11.11-bookworm
ARG PYTHON=python:3.11.11-slim-bookworm
FROM ${COMPILERS} AS packages
RUN pip install --no-cache-dir uv==0.9.7
WORKDIR /src
COPY pyproject.toml requirements.lock ./
COPY deploy/sbom.py deploy/images/packages.py deploy/images/slim.py deploy/images/
# What is only there for developers is left out, and Triton, which does nothing without a C compiler: there is none where
# the image runs. What is left keeps its hashes.
RUN uv venv --python "$(command -v python3)" /opt/headway \
 && python3 deploy/images/packages.py --without triton > /tmp/worker.lock \
 && uv pip install --no-cache --compile-bytecode --python /opt/headway/bin/python --no-deps --require-hashes --requirement /tmp/worker.lock \
 && python3 deploy/images/slim.py /opt/headway \
 && python3 deploy/images/sbom.py /tmp/worker.lock > /opt/headway/sbom.json

FROM packages AS build
COPY requirements-cuda.lock ./
RUN uv venv --python "$(command -v python3)" /opt/build \
 && python3 deploy/images/packages.py --build > /tmp/build.lock \
 && uv pip install --no-cache --python /opt/build/bin/python --no-deps --require-hashes --requirement /tmp/build.lock \
 && uv pip install --no-cache --python /opt/build/bin/python --target /opt/cuda --no-deps --require-hashes --requirement requirements-cuda.lock
# Kernels are compiled again only where they have changed.
COPY services/headway/core/errors.py services/headway/core/
COPY kernels kernels
RUN PYTHONPATH=services:kernels /opt/headway/bin/python -m headway.kernels.build
ARG CUDA_KERNELS=yes
RUN if [ "${CUDA_KERNELS}" = yes ]; then \
      CUDA_HOME=/opt/cuda/nvidia/cu13 PYTHONPATH=services:kernels /opt/headway/bin/python -m headway.kernels.cuda.build; \
    fi
COPY README.md ./
COPY proto proto
COPY services services
COPY workers workers
# As a wheel, which has the program's version beside it; in a directory, and so a layer, of its own.
RUN /opt/build/bin/python proto/generate.py \
 && /opt/build/bin/python -m hatchling build --target wheel --directory /tmp/wheel \
 && uv pip install --no-cache --compile-bytecode --python /opt/headway/bin/python --prefix /opt/program --no-deps /tmp/wheel/headway-*.whl

FROM ${PYTHON}
LABEL org.opencontainers.image.title="headway-worker" \
      org.opencontainers.image.description="Headway's workers, on the CPU and on CUDA" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.headway.sbom="/opt/headway/sbom.json"
RUN useradd --uid 10001 --no-create-home --home-dir /tmp headway && install --directory --owner 10001 --mode 0700 /state
COPY --from=packages /opt/headway /opt/headway
COPY --from=build /opt/program /opt/headway
ENV PATH=/opt/headway/bin:$PATH HOME=/tmp NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib
USER 10001:10001
CMD ["python", "-m", "headway.controller.cell", "--help"]
