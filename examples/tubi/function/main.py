"""The function of the example: says where a request came from and what its environment is."""

import json
import os


def handler(event, context):
    body = {
        "greeting": os.environ.get("GREETING"),
        "url": os.environ.get("URL"),
        "table": os.environ.get("DYNAMODB_TABLE0_NAME"),
        "path": event.get("rawPath"),
        "host": event.get("headers", {}).get("host"),
    }
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(body)}
