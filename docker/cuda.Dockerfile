# Paddock for NVIDIA GPUs. Not tried: no machine with one has built it yet.
#
#   docker build -f docker/cuda.Dockerfile -t paddock:cuda .
#   paddock launch container --image paddock:cuda --device cuda --mount "$PWD" -- train gpt2/tiny --nproc-per-node 8
#
# BASE is an image with torch 2.13 and CUDA.
ARG BASE=pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime
FROM ${BASE}

WORKDIR /opt/paddock
COPY pyproject.toml constraints.txt README.md LICENSE docker/without_torch.py ./
COPY paddock ./paddock
# torch is that of the base; the pins are those of the tests, but for it.
RUN grep -v '^torch==' constraints.txt > pins.txt \
    && python without_torch.py > requirements.txt \
    && pip install --no-cache-dir --constraint pins.txt --requirement requirements.txt \
    && pip install --no-cache-dir --no-deps . \
    && paddock --version

RUN useradd --create-home paddock
USER paddock
WORKDIR /home/paddock
CMD ["paddock", "--help"]
