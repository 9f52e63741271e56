# Services and emulated workers, without torch: docker build -f deploy/images/headway.Dockerfile -t headway:0.1.0 .
ARG PYTHON=python:3.11.11-slim-bookworm
FROM ${PYTHON} AS build
RUN pip install --no-cache-dir uv==0.9.7
WORKDIR /src
COPY pyproject.toml requirements.lock ./
COPY deploy/sbom.py deploy/images/packages.py deploy/images/slim.py deploy/images/
# What is only there for workers that compute, and for developers, is left out; what is left keeps its hashes.
RUN uv venv --python "$(command -v python3)" /opt/headway \
 && uv venv --python "$(command -v python3)" /opt/build \
 && python3 deploy/images/packages.py --without torch > /tmp/services.lock \
 && uv pip install --no-cache --compile-bytecode --python /opt/headway/bin/python --no-deps --require-hashes --requirement /tmp/services.lock \
 && python3 deploy/images/slim.py /opt/headway \
 && python3 deploy/images/sbom.py /tmp/services.lock > /opt/headway/sbom.json \
 && python3 deploy/images/packages.py --build > /tmp/build.lock \
 && uv pip install --no-cache --python /opt/build/bin/python --no-deps --require-hashes --requirement /tmp/build.lock
COPY README.md ./
COPY proto proto
COPY services services
COPY workers workers
COPY kernels kernels
# As a wheel, which has the program's version beside it.
RUN /opt/build/bin/python proto/generate.py \
 && /opt/build/bin/python -m hatchling build --target wheel --directory /tmp/wheel \
 && uv pip install --no-cache --compile-bytecode --python /opt/headway/bin/python --no-deps /tmp/wheel/headway-*.whl

FROM ${PYTHON}
LABEL org.opencontainers.image.title="headway" \
      org.opencontainers.image.description="Headway's services and emulated workers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.headway.sbom="/opt/headway/sbom.json"
RUN useradd --uid 10001 --no-create-home --home-dir /tmp headway
COPY --from=build /opt/headway /opt/headway
ENV PATH=/opt/headway/bin:$PATH HOME=/tmp NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib
USER 10001:10001
CMD ["headway", "--help"]
