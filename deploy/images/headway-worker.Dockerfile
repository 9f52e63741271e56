# Workers that compute, on the CPU and on CUDA: docker build -f deploy/images/headway-worker.Dockerfile -t headway-worker:0.1.0 .
# The torch of requirements.lock brings CUDA's libraries along; the node brings the driver.
ARG PYTHON=python:3.11.11-bookworm
FROM ${PYTHON} AS build
RUN pip install --no-cache-dir uv==0.9.7
WORKDIR /src
COPY . .
RUN uv venv --python "$(command -v python3)" .venv \
 && python3 deploy/images/packages.py > /tmp/worker.lock \
 && uv pip install --python .venv/bin/python --no-deps --require-hashes --requirement /tmp/worker.lock \
 && uv venv --python "$(command -v python3)" /opt/build \
 && python3 deploy/images/packages.py --build > /tmp/build.lock \
 && uv pip install --python /opt/build/bin/python --no-deps --require-hashes --requirement /tmp/build.lock \
 && uv pip install --target build/cuda --no-deps --require-hashes --requirement requirements-cuda.lock \
 && /opt/build/bin/python proto/generate.py \
 && PYTHONPATH=services:workers:kernels:proto/gen .venv/bin/python -m headway.kernels.build \
 && CUDA_HOME="$PWD/build/cuda/nvidia/cu13" PYTHONPATH=services:workers:kernels:proto/gen \
    .venv/bin/python -m headway.kernels.cuda.build \
 && /opt/build/bin/python -m hatchling build --target wheel --directory /tmp/wheel \
 && uv pip install --python .venv/bin/python --no-deps /tmp/wheel/headway-*.whl \
 && mv .venv /opt/headway \
 && python3 deploy/sbom.py /tmp/worker.lock > /opt/headway/sbom.json \
 && sed -i '1s|^#!.*/python[0-9.]*$|#!/opt/headway/bin/python|' /opt/headway/bin/*

FROM ${PYTHON}
LABEL org.opencontainers.image.title="headway-worker" \
      org.opencontainers.image.description="Headway's workers, on the CPU and on CUDA" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.headway.sbom="/opt/headway/sbom.json"
RUN useradd --uid 10001 --no-create-home --home-dir /tmp headway && install --directory --owner 10001 --mode 0700 /state
COPY --from=build /opt/headway /opt/headway
ENV PATH=/opt/headway/bin:$PATH HOME=/tmp NUMBA_CACHE_DIR=/tmp/numba
USER 10001:10001
CMD ["python", "-m", "headway.controller.cell", "--help"]
