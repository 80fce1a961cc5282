# docker build -t forecaster . && docker run --rm -v "$PWD:/work" forecaster predict data/demo.csv --horizon 28 --out now.csv
FROM python:3.12-slim
# torch without gigabytes of CUDA; leave this out for GPUs.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY forecaster forecaster
COPY configs configs
COPY data data
RUN python -m pip install --no-cache-dir -c constraints.txt ".[holidays,onnx,report]"
WORKDIR /work
ENTRYPOINT ["forecaster"]
CMD ["--help"]
