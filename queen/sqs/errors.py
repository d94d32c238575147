"""The errors of SQS: names, codes and HTTP statuses as AWS has them."""

from collections.abc import Mapping

from msgspec import Struct


class Kind(Struct, frozen=True):
    """A kind of error.

    Attributes:
        name: in the JSON protocol.
        code: in the query protocol, and in ``x-amzn-query-error``.
        status: HTTP's.
        sender: whether the request is at fault.
    """

    name: str
    code: str
    status: int = 400
    sender: bool = True


_SIMPLE = "AWS.SimpleQueueService."
_KINDS = (
    Kind("QueueDoesNotExist", f"{_SIMPLE}NonExistentQueue"),
    Kind("QueueNameExists", "QueueAlreadyExists"),
    Kind("BatchEntryIdsNotDistinct", f"{_SIMPLE}BatchEntryIdsNotDistinct"),
    Kind("BatchRequestTooLong", f"{_SIMPLE}BatchRequestTooLong"),
    Kind("EmptyBatchRequest", f"{_SIMPLE}EmptyBatchRequest"),
    Kind("InvalidBatchEntryId", f"{_SIMPLE}InvalidBatchEntryId"),
    Kind("TooManyEntriesInBatchRequest", f"{_SIMPLE}TooManyEntriesInBatchRequest"),
    Kind("MessageNotInflight", f"{_SIMPLE}MessageNotInflight"),
    Kind("UnsupportedOperation", f"{_SIMPLE}UnsupportedOperation"),
    Kind("PurgeQueueInProgress", f"{_SIMPLE}PurgeQueueInProgress", 403),
    Kind("OverLimit", "OverLimit", 403),
    Kind("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
    Kind("InvalidAttributeName", "InvalidAttributeName"),
    Kind("InvalidAttributeValue", "InvalidAttributeValue"),
    Kind("InvalidMessageContents", "InvalidMessageContents"),
    Kind("KmsNotFound", "KMS.NotFoundException"),
    Kind("KmsDisabled", "KMS.DisabledException"),
    Kind("ResourceNotFoundException", "ResourceNotFoundException", 404),
    Kind("InvalidParameterValueException", "InvalidParameterValue"),
    Kind("MissingRequiredParameterException", "MissingParameter"),
    Kind("SerializationException", "MalformedQueryString"),
    Kind("UnknownOperationException", "InvalidAction"),
    Kind("RequestEntityTooLarge", "RequestEntityTooLarge", 413),
    Kind("RequestThrottled", "RequestThrottled", 403),
    Kind("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403),
    Kind("IncompleteSignatureException", "IncompleteSignature"),
    Kind("UnrecognizedClientException", "InvalidClientTokenId", 403),
    Kind("InvalidSignatureException", "SignatureDoesNotMatch", 403),
    Kind("AccessDeniedException", "AccessDenied", 403),
    Kind("ServiceUnavailable", "ServiceUnavailable", 503, sender=False),
    Kind("InternalFailure", "InternalFailure", 500, sender=False),
)
_BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}


class SqsError(Exception):
    """An error that a client gets; ``str()`` is its message.

    Args:
        name: of its kind.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.kind = _BY_NAME[name]


def invalid_value(message: str) -> SqsError:
    """A parameter has a value that is not allowed."""
    return SqsError("InvalidParameterValueException", message)


def invalid_parameter(name: str, value: object, reason: str) -> SqsError:
    """A parameter has a value that is not allowed, for a reason."""
    return invalid_value(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def missing(name: str) -> SqsError:
    """A parameter is missing."""
    return SqsError("MissingRequiredParameterException", f"The request must contain the parameter {name}.")


def unknown_queue() -> SqsError:
    """A queue does not exist."""
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def invalid_handle(handle: str) -> SqsError:
    """A receipt handle is not one of its queue."""
    return SqsError("ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.')
