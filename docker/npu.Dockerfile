# Paddock for Ascend NPUs. Not tried: no machine with one has built it yet.
#
#   docker build -f docker/npu.Dockerfile --build-arg BASE=ascendai/cann:TAG -t paddock:npu .
#   paddock launch container --image paddock:npu --device npu --mount "$PWD" -- train gpt2/tiny --nproc-per-node 8
#
# BASE is an image with CANN and Python 3.11, in the version that TORCH_NPU asks for; the driver is the host's.
ARG BASE
FROM ${BASE}

ARG TORCH=2.13.0
ARG TORCH_NPU=2.13.0
WORKDIR /opt/paddock
COPY pyproject.toml constraints.txt README.md LICENSE docker/without_torch.py ./
COPY paddock ./paddock
RUN pip install --no-cache-dir "torch==${TORCH}" "torch_npu==${TORCH_NPU}"
# The pins are those of the tests, but for torch.
RUN grep -v '^torch==' constraints.txt > pins.txt \
    && python without_torch.py > requirements.txt \
    && pip install --no-cache-dir --constraint pins.txt --requirement requirements.txt \
    && pip install --no-cache-dir --no-deps . \
    && paddock --version

RUN useradd --create-home paddock
USER paddock
WORKDIR /home/paddock
CMD ["paddock", "--help"]
