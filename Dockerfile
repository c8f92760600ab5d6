# Untried on a machine of ours: docker build -t ringside . && docker run --rm ringside
#
# runs the demo; any other command likewise: docker run --rm ringside simulate all_reduce --cluster dgx-h100:2
# To keep the report, mount a folder that every user may write: -v "$PWD/kept:/home/ringside/kept", demo -o kept/demo
FROM python:3.11-slim AS built
WORKDIR /ringside
COPY . .
# PyTorch's own index has torch without CUDA, which pip prefers to PyPI's build of the same version
RUN python3 -m venv /venv && /venv/bin/pip install -q --no-cache-dir \
    --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt '.[all]'

FROM python:3.11-slim
COPY --from=built /venv /venv
RUN useradd --create-home ringside
USER ringside
WORKDIR /home/ringside
ENTRYPOINT ["/venv/bin/ringside"]
CMD ["demo"]
