"""SCRAM-SHA-256 with the right password, a wrong one, and none."""

import sys

import pymongo
from pymongo.errors import OperationFailure

good, wrong, none = sys.argv[1:4]
client = pymongo.MongoClient(good, serverSelectionTimeoutMS=5000, authMechanism="SCRAM-SHA-256")
client["a"]["b"].insert_one({"x": 1})
assert client["a"]["b"].count_documents({}) == 1
# The mechanism is negotiated, too.
assert pymongo.MongoClient(good, serverSelectionTimeoutMS=5000)["a"]["b"].count_documents({}) == 1
for url in (wrong, none):
    try:
        pymongo.MongoClient(url, serverSelectionTimeoutMS=5000)["a"]["b"].find_one()
        raise AssertionError("accepted")
    except OperationFailure as error:
        assert error.code in (13, 18), error
print("done")
