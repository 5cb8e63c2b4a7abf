# Paddock for Tecorigin SDAA cards. Not tried: no machine with one has built it yet.
#
#   docker build -f docker/sdaa.Dockerfile --build-arg BASE=IMAGE:TAG -t paddock:sdaa .
#   paddock launch container --image paddock:sdaa --device sdaa --mount "$PWD" -- train resnet/50 --nproc-per-node 4
#
# BASE is Tecorigin's image with torch 2.13 and torch_sdaa, which its customers can pull. An older torch lacks what
# Paddock calls, and `paddock doctor` says so.
ARG BASE
FROM ${BASE}

WORKDIR /opt/paddock
COPY pyproject.toml constraints.txt README.md LICENSE docker/without_torch.py ./
COPY paddock ./paddock
# torch and its plug-in are those of the base; the pins are those of the tests, but for torch.
RUN grep -v '^torch==' constraints.txt > pins.txt \
    && python without_torch.py > requirements.txt \
    && pip install --no-cache-dir --constraint pins.txt --requirement requirements.txt \
    && pip install --no-cache-dir --no-deps . \
    && paddock --version

RUN useradd --create-home paddock
USER paddock
WORKDIR /home/paddock
CMD ["paddock", "--help"]
