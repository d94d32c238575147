"""The protocol of AWS SQS over the queues of ``queen/simple_mq``: what boto3 and other SDKs speak (ADR 65).

Requests are parsed from botocore's model of the service, in both of its protocols.
"""
