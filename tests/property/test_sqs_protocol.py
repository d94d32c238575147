"""The protocol of SQS without a server: both forms of requests and answers, hashes, receipt handles, signatures."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID, uuid4
from xml.etree import ElementTree as ET

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis.strategies import binary, characters, integers, text, uuids

from queen.simple_mq.sqs_requests import ReceivedMessage
from queen.sqs import attributes, contents, query, signature
from queen.sqs.actions import ACTIONS
from queen.sqs.addresses import check_name, name_of_arn, name_of_url
from queen.sqs.contents import Kept, Value
from queen.sqs.errors import SqsError
from queen.sqs.handles import Handles
from queen.sqs.messages import readable
from queen.sqs.model import actions
from queen.sqs.signature import Request
from spec.guarantees import Level, checks

NS = "{http://queue.amazonaws.com/doc/2012-11-05/}"
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def code(function: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(SqsError) as caught:
        function(*arguments, **named)
    return caught.value.kind.code


# ---------------------------------------------------------------- requests


def test_every_operation_of_the_model_is_served() -> None:
    assert ACTIONS.keys() == actions().keys()


def test_both_protocols_read_the_same_request() -> None:
    attribute = {"a": {"DataType": "Binary.x", "BinaryValue": "aGk="}, "b": {"DataType": "String", "StringValue": "ü&"}}
    entry = {"Id": "1", "MessageBody": "x y", "DelaySeconds": 3, "MessageAttributes": attribute, "MessageGroupId": "g"}
    action = actions()["SendMessageBatch"]
    sent = action.from_json(json.dumps({"QueueUrl": "q", "Entries": [entry, {"Id": "2", "MessageBody": "z"}]}).encode())
    first = "SendMessageBatchRequestEntry.1."
    pairs = {
        "Action": "SendMessageBatch", "Version": "2012-11-05", "QueueUrl": "q", f"{first}Id": "1",
        f"{first}MessageBody": "x y", f"{first}DelaySeconds": "3", f"{first}MessageGroupId": "g",
        f"{first}MessageAttribute.1.Name": "a", f"{first}MessageAttribute.1.Value.DataType": "Binary.x",
        f"{first}MessageAttribute.1.Value.BinaryValue": "aGk=", f"{first}MessageAttribute.2.Name": "b",
        f"{first}MessageAttribute.2.Value.DataType": "String", f"{first}MessageAttribute.2.Value.StringValue": "ü&",
        "SendMessageBatchRequestEntry.2.Id": "2", "SendMessageBatchRequestEntry.2.MessageBody": "z",
    }  # fmt: skip
    assert action.from_texts(query.parameters(query.pairs(urlencode(pairs)), action.name)) == sent


@pytest.mark.parametrize(
    ("action", "pairs", "expected"),
    [
        ("CreateQueue", "Attribute.10.Name=C&Attribute.10.Value=&Attribute.2.Name=B&Attribute.2.Value=2",
         {"Attributes": {"B": "2", "C": ""}}),
        ("CreateQueue", "Tag.1.Key=k&Tag.1.Value=v", {"tags": {"k": "v"}}),
        ("SetQueueAttributes", "Attribute.Name=A&Attribute.Value=1", {"Attributes": {"A": "1"}}),
        ("GetQueueAttributes", "AttributeName.1=All&AttributeName.2=B", {"AttributeNames": ["All", "B"]}),
        ("GetQueueAttributes", "AttributeName=All", {"AttributeNames": ["All"]}),
        ("UntagQueue", "TagKey.1=a", {"TagKeys": ["a"]}),
        ("TagQueue", "Tag.1.Key=a&Tag.1.Value=b&Tag.2.Key=c", {"Tags": {"a": "b", "c": ""}}),
        ("AddPermission", "AWSAccountId.1=1&ActionName.1=X&Label=l",
         {"AWSAccountIds": ["1"], "Actions": ["X"], "Label": "l"}),
    ],
)  # fmt: skip
def test_lists_and_maps_of_a_query(action: str, pairs: str, expected: dict[str, Any]) -> None:
    found = actions()[action].from_texts(query.parameters(query.pairs(pairs), action))
    assert found == actions()[action].from_json(json.dumps(expected).encode())


@pytest.mark.parametrize("pairs", ["a.b=1&a=2", "a=2&a.b=1", ".".join("a" * 9) + "=1", "%ff=1", "Attribute.1.Value=2",
                                   "&".join(f"a{n}=1" for n in range(3000))])  # fmt: skip
def test_a_malformed_query_is_a_clear_error(pairs: str) -> None:
    assert code(lambda: query.parameters(query.pairs(pairs), "X")) in {"MalformedQueryString", "MissingParameter"}


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"QueueUrl":1}', b"\xff", b'{"MessageAttributes":{"a":1}}'])
def test_malformed_json_is_a_clear_error(body: bytes) -> None:
    assert code(actions()["SendMessage"].from_json, body) == "MalformedQueryString"


def test_required_parameters_are_those_of_the_model() -> None:
    action = actions()["SendMessage"]
    with pytest.raises(SqsError, match=r"The request must contain the parameter MessageBody\."):
        action.check_required(action.from_json(b"{}"))


# ---------------------------------------------------------------- answers


def test_an_answer_in_xml_has_the_elements_of_aws() -> None:
    message = {
        "MessageId": "m", "Body": "<a>\r\n&\t\"'", "Attributes": {"SenderId": "1"},
        "MessageAttributes": {"a": {"BinaryValue": b"hi", "DataType": "Binary"}},
    }  # fmt: skip
    root = ET.fromstring(query.answer("ReceiveMessage", {"Messages": [message, {"MessageId": "n"}]}, "id"))
    assert root.tag == f"{NS}ReceiveMessageResponse"
    assert root.findtext(f"{NS}ResponseMetadata/{NS}RequestId") == "id"
    first, second = root.findall(f"{NS}ReceiveMessageResult/{NS}Message")
    assert second.findtext(f"{NS}MessageId") == "n"
    assert first.findtext(f"{NS}Body") == "<a>\r\n&\t\"'"
    assert first.findtext(f"{NS}Attribute/{NS}Name") == "SenderId"
    assert first.findtext(f"{NS}MessageAttribute/{NS}Value/{NS}BinaryValue") == "aGk="
    empty = query.answer("ReceiveMessage", {}, "id")
    assert b"<ReceiveMessageResult/>" in empty
    assert b"Result" not in query.answer("DeleteMessage", None, "id")


def test_an_error_in_xml_can_be_read_whatever_its_text_is() -> None:
    root = ET.fromstring(query.error(SqsError("QueueNameExists", "\0 <&"), "id"))
    assert root.findtext(f"{NS}Error/{NS}Code") == "QueueAlreadyExists"
    assert root.findtext(f"{NS}Error/{NS}Message") == "? <&"
    assert root.findtext(f"{NS}Error/{NS}Type") == "Sender"


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("found", "md5"),
    [
        ({"Foo": Value("String", "Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        ({"attr1": Value("Binary", data=b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")},
         "8cbe4db156db8a94db8b801b7addb984"),
        ({"Help.Me": Value("String", "Me"), "Hello": Value("String", "There"), "General": Value("String", "Kenobi")},
         "4c360f3fdafd970e05fae2f149d997f5"),
    ],
)  # fmt: skip
def test_hashes_of_attributes_are_those_of_aws(found: dict[str, Value], md5: str) -> None:
    assert contents.md5_of_attributes(found) == md5


def _attributes(given: dict[str, Any]) -> dict[str, Value]:
    parsed = actions()["SendMessage"].from_json(json.dumps({"MessageAttributes": given}).encode())
    return contents.attributes_of(parsed.MessageAttributes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", {"DataType": "String", "StringValue": ""}), ("a", {"DataType": "String"}), ("a", {"StringValue": "x"}),
        ("a", {"DataType": "Text", "StringValue": "x"}), ("a", {"DataType": "Number", "StringValue": "x"}),
        ("a", {"DataType": "Binary", "StringValue": "x"}), ("a", {"DataType": "String", "BinaryValue": "aGk="}),
        ("a", {"DataType": "String", "StringValue": "\b"}),
        ("a", {"DataType": "Number." + "1" * 250, "StringValue": "1"}),
        ("a", {"DataType": "String", "StringListValues": ["x"]}), ("", {"DataType": "String", "StringValue": "x"}),
        ("aWs.x", {"DataType": "String", "StringValue": "x"}), ("AMAZON.x", {"DataType": "String", "StringValue": "x"}),
        (".x", {"DataType": "String", "StringValue": "x"}), ("x.", {"DataType": "String", "StringValue": "x"}),
        ("x..y", {"DataType": "String", "StringValue": "x"}), ("x" * 257, {"DataType": "String", "StringValue": "x"}),
        ("x!", {"DataType": "String", "StringValue": "x"}),
    ],
)  # fmt: skip
def test_attributes_that_aws_refuses(name: str, value: dict[str, Any]) -> None:
    assert code(_attributes, {name: value}) == "InvalidParameterValue"


def test_a_message_has_at_most_ten_attributes() -> None:
    value = {"DataType": "Number.int", "StringValue": "-1.5e3"}
    assert len(_attributes({f"attr.ø{n}": value for n in range(10)})) == 10
    assert code(_attributes, {f"a{n}": value for n in range(11)}) == "InvalidParameterValue"


@given(text(characters(exclude_categories=("Cs",)), max_size=5))
def test_a_body_is_what_xml_can_carry(body: str) -> None:
    allowed = all(
        each in "\t\n\r" or " " <= each <= "\ud7ff" or "\ue000" <= each <= "\ufffd" or each >= "\U00010000"
        for each in body
    )
    if allowed:
        contents.check_body(body)
        assert ET.fromstring(query.answer("X", {"Body": f"[{body}]"}, "")).findtext(f"{NS}XResult/{NS}Body") == (
            f"[{body}]"
        )
    else:
        assert code(contents.check_body, body) == "InvalidMessageContents"


def test_what_is_kept_comes_back() -> None:
    kept = Kept({"a": Value("Binary", data=b"\0"), "b": Value("String", "x")}, "trace", "me")
    assert contents.unpack(contents.pack(kept)) == kept
    assert contents.pack(Kept()) is None
    assert contents.unpack(None) == Kept()


def test_a_consumer_chooses_attributes_by_name_and_prefix() -> None:
    have = {name: Value("String", "x") for name in ("foo", "foo.a", "bar")}
    for names, expected in [
        (None, []), ([], []), (["All"], list(have)), ([".*"], list(have)), (["*"], list(have)),
        (["bar", "no"], ["bar"]),
        (["foo.*"], ["foo", "foo.a"]), (["fo"], []),
    ]:  # fmt: skip
        assert list(contents.selected(have, names)) == expected


# ---------------------------------------------------------------- queues


@pytest.mark.parametrize(("name", "fifo"), [("", False), ("a/b", False), ("a" * 81, False), ("a.fifo", False),
                                            ("a", True), (".fifo", True), ("a" * 76 + ".fifo", True)])  # fmt: skip
def test_names_that_aws_refuses(name: str, fifo: bool) -> None:
    assert code(check_name, name, fifo=fifo) == "InvalidParameterValue"


def test_a_queue_is_named_by_url_path_or_name() -> None:
    assert name_of_url("http://h:1/sqs/0/q.fifo", "x") == "q.fifo"
    assert name_of_url("q", "") == name_of_url(None, "000/q") == name_of_url(None, "000/q/") == "q"
    assert name_of_arn("arn:aws:sqs:eu-west-1:1:q", "X") == "q"
    assert code(name_of_arn, "q", "X") == "InvalidParameterValue"
    assert code(name_of_url, None, "") == "MissingParameter"


ARN = "arn:aws:sqs:us-east-1:000000000000:dlq"


@pytest.mark.parametrize(
    ("given", "fifo", "expected"),
    [
        ({"Foo": "1"}, False, "InvalidAttributeName"), ({"QueueArn": "1"}, False, "InvalidAttributeName"),
        ({"DelaySeconds": "901"}, False, "InvalidAttributeValue"),
        ({"DelaySeconds": "x"}, False, "InvalidAttributeValue"),
        ({"DelaySeconds": ""}, False, "InvalidAttributeValue"),
        ({"DelaySeconds": "-1"}, False, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1023"}, False, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1048577"}, False, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, False, "InvalidAttributeValue"),
        ({"ReceiveMessageWaitTimeSeconds": "21"}, False, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "43201"}, False, "InvalidAttributeValue"),
        ({"FifoQueue": "true"}, False, "InvalidAttributeName"), ({"FifoQueue": "false"}, True, "InvalidAttributeValue"),
        ({"ContentBasedDeduplication": "true"}, False, "InvalidAttributeName"),
        ({"ContentBasedDeduplication": "yes"}, True, "InvalidAttributeValue"),
        ({"Policy": "x"}, False, "InvalidAttributeValue"),
        ({"SqsManagedSseEnabled": "x"}, False, "InvalidAttributeValue"),
        ({"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}, False, "InvalidAttributeName"),
        ({"RedrivePolicy": "x"}, False, "InvalidParameterValue"),
        ({"RedrivePolicy": "{}"}, False, "InvalidParameterValue"),
        ({"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN})}, False, "InvalidParameterValue"),
        ({"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 0})}, False,
         "InvalidParameterValue"),
        ({"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": "x"})}, False,
         "InvalidParameterValue"),
        ({"RedrivePolicy": json.dumps({"deadLetterTargetArn": "dummy", "maxReceiveCount": 1})}, False,
         "InvalidParameterValue"),
        ({"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 1, "x": "\0"})}, False,
         "InvalidParameterValue"),
        ({"Policy": '{"a": "\\u0000"}'}, False, "InvalidAttributeValue"),
        ({"RedriveAllowPolicy": '{"redrivePermission":"some"}'}, False, "InvalidParameterValue"),
        ({"RedriveAllowPolicy": '{"redrivePermission":"byQueue"}'}, False, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_attributes_of_queues_that_aws_refuses(given: dict[str, str], fifo: bool, expected: str) -> None:
    assert code(attributes.check_settable, given, fifo=fifo) == expected


def test_attributes_of_queues_that_aws_takes() -> None:
    for count in (3, "3"):
        policy = json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": count})
        attributes.check_settable({"RedrivePolicy": policy, "Policy": "", "DelaySeconds": "0"}, fifo=False)
        assert attributes.redrive_of(policy) == attributes.Redrive("dlq", 3)
    allowed = attributes.allowed_of(json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [ARN]}))
    assert (allowed.admits("dlq"), allowed.admits("other")) == (True, False)
    assert attributes.allowed_of(None).admits("x")
    assert not attributes.allowed_of('{"redrivePermission":"denyAll"}').admits("x")


def test_an_existing_queue_must_have_the_given_values() -> None:
    have = {"DelaySeconds": "5", "RedrivePolicy": '{"a": 1, "b": 2}'}
    attributes.check_same(have, {"DelaySeconds": "5", "VisibilityTimeout": "30", "RedrivePolicy": '{"b":2,"a":1}'})
    attributes.check_same(have, {})
    assert code(attributes.check_same, have, {"DelaySeconds": "0"}) == "QueueAlreadyExists"
    assert code(attributes.check_same, have, {"VisibilityTimeout": "31"}) == "QueueAlreadyExists"


# ---------------------------------------------------------------- receipt handles


@checks("G-SQS-12", level=Level.MODEL)
@given(uuids(), uuids(), integers(1, 2**32 - 1), integers(0, 2**48 - 1))
def test_a_receipt_handle_is_good_for_its_queue_only(queue: UUID, message: UUID, count: int, at_ms: int) -> None:
    handles = Handles("secret")
    handle = handles.seal(queue, message, count, at_ms)
    found = handles.open(queue, handle)
    assert (found.message_id, found.receive_count, found.received_ms) == (message, count, at_ms)
    for other, secret in ((uuid4(), "secret"), (queue, "another")):
        assert code(Handles(secret).open, other, handle) == "ReceiptHandleIsInvalid"


@given(binary(max_size=60), integers(0, 55))
def test_no_other_text_is_a_receipt_handle(data: bytes, place: int) -> None:
    handles, queue = Handles("secret"), uuid4()
    handle = handles.seal(queue, uuid4(), 1, 1)
    changed = handle[:place] + ("A" if handle[place] != "A" else "B") + handle[place + 1 :]
    for each in (changed, data.hex(), data.decode("latin-1"), "", handle + "=", "ü" * 56):
        assert code(handles.open, queue, each) == "ReceiptHandleIsInvalid"


# ---------------------------------------------------------------- signatures


def _signed(url: str, body: bytes = b"{}", **changed: str) -> Request:
    headers = {"Host": "localhost:6632", "X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "x", **changed}
    sent = AWSRequest("POST", url, headers, body)
    SigV4Auth(Credentials(KEY, SECRET), "sqs", "eu-central-1").add_auth(sent)
    parts = urlsplit(url)
    return Request("POST", parts.path, parts.query, {name.lower(): value for name, value in sent.headers.items()}, body)


def _check(request: Request, secret: str = SECRET, later: timedelta = timedelta()) -> None:
    signed = signature.signed_by(request)
    assert signed is not None
    signature.check(request, signed, secret, datetime.now(UTC) + later)


def _replaced(request: Request, **values: Any) -> Request:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return Request(**{**fields, **values})


URL = "http://localhost:6632/sqs/000000000000/q.fifo?a=b%20c&A=%2F&z"


def test_a_signature_of_botocore_is_good() -> None:
    _check(_signed(URL))
    _check(_signed("http://localhost:6632/sqs"))
    found = signature.signed_by(_signed(URL))
    assert found is not None
    assert (found.key_id, found.region) == (KEY, "eu-central-1")
    assert signature.signed_by(Request("GET", "/sqs", "", {}, b"")) is None


@checks("G-SQS-13", level=Level.MODEL)
def test_whatever_was_signed_cannot_be_changed() -> None:
    good = _signed(URL)
    for bad in (
        _replaced(good, method="GET"), _replaced(good, path="/sqs/000000000000/r"), _replaced(good, query="a=c"),
        _replaced(good, body=b"{} "), _replaced(good, headers={**good.headers, "host": "other"}),
        _replaced(good, headers={**good.headers, "x-amz-target": "AmazonSQS.PurgeQueue"}),
        _replaced(good, headers={**good.headers, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}),
    ):  # fmt: skip
        assert code(_check, bad) == "SignatureDoesNotMatch"
    assert code(_check, good, SECRET[:-1]) == "SignatureDoesNotMatch"


@checks("G-SQS-13", level=Level.MODEL)
def test_an_action_that_is_not_signed_is_refused() -> None:
    sent = AWSRequest("POST", URL, {"Host": "localhost:6632"}, b"{}")
    SigV4Auth(Credentials(KEY, SECRET), "sqs", "eu-central-1").add_auth(sent)
    headers = {name.lower(): value for name, value in sent.headers.items()}
    query_only = _replaced(_signed(URL), headers=headers)
    _check(query_only)
    with_target = {**headers, "x-amz-target": "AmazonSQS.PurgeQueue"}
    assert code(_check, _replaced(query_only, headers=with_target)) == "SignatureDoesNotMatch"


@checks("G-SQS-13", level=Level.MODEL)
def test_a_signature_is_good_for_five_minutes() -> None:
    good = _signed(URL)
    for minutes in (-4, 4):
        _check(good, later=timedelta(minutes=minutes))
    for minutes in (-6, 6):
        assert code(_check, good, later=timedelta(minutes=minutes)) == "SignatureDoesNotMatch"


def test_a_presigned_url_is_good_until_it_expires() -> None:
    sent = AWSRequest("GET", "http://localhost:6632/sqs?Action=ListQueues&QueueNamePrefix=a b&x=%2B")
    SigV4QueryAuth(Credentials(KEY, SECRET, "session"), "sqs", "us-east-1", expires=900).add_auth(sent)
    parts = urlsplit(sent.url)
    good = Request("GET", parts.path, parts.query, {"host": "localhost:6632"}, b"")
    _check(good, later=timedelta(minutes=14))
    assert code(_check, good, later=timedelta(minutes=16)) == "SignatureDoesNotMatch"
    longer = good.query.replace("X-Amz-Expires=900", "X-Amz-Expires=90000")
    assert code(_check, _replaced(good, query=longer)) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "header", ["AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=a, Signature=b",
               "AWS4-HMAC-SHA256 Credential=a/20260101/r/sqs/aws4_request, SignedHeaders=host"],
)  # fmt: skip
def test_a_malformed_signature_is_a_clear_error(header: str) -> None:
    headers = {"authorization": header, "x-amz-date": "x", "host": "h"}
    assert code(signature.signed_by, Request("POST", "/sqs", "", headers, b"")) == "IncompleteSignature"


def test_a_malformed_time_is_a_clear_error() -> None:
    good = _signed(URL)
    assert code(_check, _replaced(good, headers={**good.headers, "x-amz-date": "20260101"})) == "IncompleteSignature"


@pytest.mark.parametrize("expires", ["0", "604801", "00604800999", "1" * 40, "-1", "1.5", "\u0661"])
def test_a_presigned_url_is_good_for_a_week_at_most(expires: str) -> None:
    pairs = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": "a/20200101/us-east-1/sqs/aws4_request",
        "X-Amz-Date": "20200101T000000Z", "X-Amz-SignedHeaders": "host", "X-Amz-Signature": "a",
        "X-Amz-Expires": expires,
    }  # fmt: skip
    assert code(signature.signed_by, Request("GET", "/sqs", urlencode(pairs), {}, b"")) == "IncompleteSignature"


@pytest.mark.parametrize("time", ["99991231T235959Z", "00010101T000000Z"])
def test_a_signature_at_the_end_of_time_is_refused(time: str) -> None:
    authorization = f"AWS4-HMAC-SHA256 Credential=a/{time[:8]}/r/sqs/aws4_request, SignedHeaders=host, Signature=a"
    request = Request("POST", "/sqs", "", {"authorization": authorization, "x-amz-date": time, "host": "h"}, b"")
    assert code(_check, request) == "SignatureDoesNotMatch"


# ---------------------------------------------------------------- receive


def _received(body: str | None, group: str | None = None) -> ReceivedMessage:
    now = datetime.now(UTC)
    return ReceivedMessage(uuid4(), body, None, 1, now, now, group, None, None, None, None if body else "no such key")


def test_a_message_that_cannot_be_decrypted_keeps_no_other_from_its_consumer() -> None:
    sealed, good = _received(None), _received("a")
    assert readable([sealed, good], fifo=False) == [good]
    assert readable([], fifo=False) == []
    assert code(readable, [sealed], fifo=False) == "KMS.NotFoundException"


@checks("G-SQS-3", level=Level.MODEL)
def test_no_message_overtakes_one_of_its_group_that_cannot_be_decrypted() -> None:
    before, sealed, behind, other = [
        _received(body, group) for body, group in (("a", "g"), (None, "g"), ("b", "g"), ("c", "h"))
    ]
    assert readable([before, sealed, behind, other], fifo=True) == [before, other]
