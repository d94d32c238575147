"""All actions, with the access that each requires: those of SQS, and ``Queen.…``."""

from collections.abc import Mapping

from queen.http.access import ADMIN, READ_ONLY, READ_WRITE
from queen.sqs import inspection, messages, moves, queues, receipts
from queen.sqs.worker import Served

ACTIONS: Mapping[str, Served] = {
    "AddPermission": Served(queues.add_permission, ADMIN, audited=True),
    "CancelMessageMoveTask": Served(moves.cancel_message_move_task, READ_WRITE, audited=True),
    "ChangeMessageVisibility": Served(receipts.change_message_visibility, READ_WRITE),
    "ChangeMessageVisibilityBatch": Served(receipts.change_message_visibility_batch, READ_WRITE),
    "CreateQueue": Served(queues.create_queue, READ_WRITE, audited=True, of_queue=False),
    "DeleteMessage": Served(receipts.delete_message, READ_WRITE),
    "DeleteMessageBatch": Served(receipts.delete_message_batch, READ_WRITE),
    "DeleteQueue": Served(queues.delete_queue, ADMIN, audited=True),
    "GetQueueAttributes": Served(queues.get_queue_attributes, READ_ONLY),
    "GetQueueUrl": Served(queues.get_queue_url, READ_ONLY),
    "ListDeadLetterSourceQueues": Served(queues.list_dead_letter_source_queues, READ_ONLY),
    "ListMessageMoveTasks": Served(moves.list_message_move_tasks, READ_ONLY),
    "ListQueueTags": Served(queues.list_queue_tags, READ_ONLY),
    "ListQueues": Served(queues.list_queues, READ_ONLY, of_queue=False),
    "PurgeQueue": Served(queues.purge_queue, ADMIN, audited=True),
    "Queen.ListQueues": Served(inspection.list_queues, READ_ONLY, of_queue=False),
    "Queen.PeekMessages": Served(inspection.peek_messages, READ_ONLY),
    "ReceiveMessage": Served(messages.receive_message, READ_WRITE),
    "RemovePermission": Served(queues.remove_permission, ADMIN, audited=True),
    "SendMessage": Served(messages.send_message, READ_WRITE),
    "SendMessageBatch": Served(messages.send_message_batch, READ_WRITE),
    "SetQueueAttributes": Served(queues.set_queue_attributes, READ_WRITE, audited=True),
    "StartMessageMoveTask": Served(moves.start_message_move_task, READ_WRITE, audited=True),
    "TagQueue": Served(queues.tag_queue, READ_WRITE, audited=True),
    "UntagQueue": Served(queues.untag_queue, READ_WRITE, audited=True),
}
