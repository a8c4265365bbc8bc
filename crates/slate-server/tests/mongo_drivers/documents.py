"""What people do with pymongo: documents, queries, indexes, cursors, aggregation, errors."""

import datetime
import sys

import bson
import pymongo
from pymongo import ASCENDING, DESCENDING, CursorType, InsertOne, ReturnDocument, UpdateOne
from pymongo.collation import Collation
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

client = pymongo.MongoClient(sys.argv[1], serverSelectionTimeoutMS=5000)
assert client.admin.command("ping")["ok"] == 1.0
assert client.server_info()["version"].startswith("7.")
db = client["shop"]
items = db["items"]

# Insert and find.
first = items.insert_one({"name": "anchor", "price": 10, "tags": ["iron", "heavy"]}).inserted_id
assert isinstance(first, bson.ObjectId)
assert items.find_one({"_id": first})["name"] == "anchor"
many = [{"_id": n, "name": f"rope{n:03}", "price": n % 7, "made": datetime.datetime(2026, 1, 1 + n % 28)} for n in range(500)]
assert len(items.insert_many(many).inserted_ids) == 500
assert items.count_documents({}) == 501
assert items.estimated_document_count() == 501
assert items.count_documents({"price": {"$gte": 5}}) == len([m for m in many if m["price"] >= 5]) + 1
assert items.find_one({"missing": "x"}) is None
assert db["nothing"].find_one() is None

# Cursors over several batches, sort, skip, limit, projection.
found = list(items.find({"_id": {"$type": "int"}}, batch_size=50).sort("_id", DESCENDING))
assert [f["_id"] for f in found] == list(range(499, -1, -1))
page = list(items.find({}, {"name": 1, "_id": 0}).sort([("name", ASCENDING)]).skip(1).limit(2))
assert page == [{"name": "rope000"}, {"name": "rope001"}], page
with items.find(batch_size=10) as cursor:
    next(cursor)

# Updates.
result = items.update_one({"_id": 1}, {"$set": {"price": 99}, "$push": {"tags": "new"}})
assert (result.matched_count, result.modified_count) == (1, 1)
result = items.update_many({"price": {"$lt": 3}}, {"$inc": {"price": 100}})
assert result.modified_count == result.matched_count > 0
result = items.update_one({"_id": "u"}, {"$setOnInsert": {"a": 1}}, upsert=True)
assert result.upserted_id == "u"
items.replace_one({"_id": "u"}, {"b": 2})
assert items.find_one({"_id": "u"}) == {"_id": "u", "b": 2}
after = items.find_one_and_update({"_id": "u"}, {"$inc": {"b": 1}}, return_document=ReturnDocument.AFTER)
assert after == {"_id": "u", "b": 3}
assert items.find_one_and_delete({"_id": "u"}) == {"_id": "u", "b": 3}
assert items.find_one_and_replace({"_id": "gone"}, {"x": 1}) is None
projected = items.find_one_and_update({"_id": 6}, {"$set": {"seen": True}}, {"_id": 0, "name": 1}, return_document=ReturnDocument.AFTER)
assert projected == {"name": "rope006"}, projected
assert items.find_one_and_delete({"_id": 7}, {"price": 1}) == {"_id": 7, "price": 100}
assert items.delete_one({"_id": 2}).deleted_count == 1
assert items.delete_many({"_id": {"$in": [3, 4, 5, 2]}}).deleted_count == 3
assert sorted(items.distinct("tags")) == ["heavy", "iron", "new"]

# Types come back as they went.
value = {
    "_id": "types", "int": 1, "long": bson.Int64(2**40), "double": 1.5, "text": "ä\0b", "none": None, "yes": True,
    "bytes": b"\x00\x01", "when": datetime.datetime(2026, 11, 16, 5, 0, 0, 123000), "list": [1, [2, {"x": []}]],
    "oid": bson.ObjectId(), "regex": bson.Regex("^a", "i"), "decimal": bson.Decimal128("1.10"),
    "timestamp": bson.Timestamp(1, 2), "min": bson.MinKey(), "max": bson.MaxKey(), "code": bson.Code("f()"),
}
items.insert_one(value)
assert items.find_one({"_id": "types"}) == value

# Indexes.
assert items.create_index([("price", ASCENDING), ("name", DESCENDING)]) == "price_1_name_-1"
users = db["users"]
users.create_index("email", unique=True)
users.create_index("seen", expireAfterSeconds=3600)
info = users.index_information()
assert info["email_1"]["unique"] and info["seen_1"]["expireAfterSeconds"] == 3600 and "_id_" in info
users.insert_one({"email": "a@example.org"})
try:
    users.insert_one({"email": "a@example.org"})
    raise AssertionError("a duplicate was accepted")
except DuplicateKeyError as error:
    assert error.code == 11000
plan = items.find({"price": 99}).explain()
assert plan["queryPlanner"]["winningPlan"]["inputStage"]["indexName"] == "price_1_name_-1", plan
assert plan["executionStats"]["totalDocsExamined"] == 1
users.drop_index("seen_1")
assert "seen_1" not in users.index_information()

# Bulk writes, ordered and not.
try:
    users.bulk_write([InsertOne({"email": n}) for n in ["b", "a@example.org", "c"]], ordered=False)
    raise AssertionError("a duplicate was accepted")
except BulkWriteError as error:
    assert error.details["nInserted"] == 2 and error.details["writeErrors"][0]["index"] == 1
assert users.bulk_write([UpdateOne({"email": "b"}, {"$set": {"x": 1}}), InsertOne({"email": "d"})]).modified_count == 1

# Aggregation.
orders = db["orders"]
orders.insert_many([{"item": n % 3, "qty": n, "lines": [{"sku": "a"}, {"sku": f"s{n}"}]} for n in range(9)])
grouped = list(orders.aggregate([
    {"$match": {"qty": {"$gt": 0}}},
    {"$group": {"_id": "$item", "total": {"$sum": "$qty"}, "mean": {"$avg": "$qty"}, "n": {"$sum": 1}}},
    {"$sort": {"_id": 1}},
]))
assert grouped == [
    {"_id": 0, "total": 9, "mean": 4.5, "n": 2},
    {"_id": 1, "total": 12, "mean": 4.0, "n": 3},
    {"_id": 2, "total": 15, "mean": 5.0, "n": 3},
], grouped
assert list(orders.aggregate([{"$unwind": "$lines"}, {"$match": {"lines.sku": "a"}}, {"$count": "n"}])) == [{"n": 9}]
computed = list(orders.aggregate([
    {"$sort": {"qty": -1}}, {"$skip": 1}, {"$limit": 1},
    {"$addFields": {"double": {"$multiply": ["$qty", 2]}}}, {"$project": {"_id": 0, "double": 1, "half": {"$divide": ["$qty", 2]}}},
]))
assert computed == [{"double": 14, "half": 3.5}], computed
db["kinds"].insert_many([{"_id": n, "label": f"kind{n}"} for n in range(3)])
joined = list(orders.aggregate([
    {"$match": {"qty": 4}},
    {"$lookup": {"from": "kinds", "localField": "item", "foreignField": "_id", "as": "kind"}},
]))
assert joined[0]["kind"] == [{"_id": 1, "label": "kind1"}], joined

nested = list(orders.aggregate([{"$match": {"qty": 1}}, {"$project": {"_id": 0, "lines": {"sku": 1}}}]))
assert nested == [{"lines": [{"sku": "a"}, {"sku": "s1"}]}], nested
db.command({"createIndexes": "kinds", "indexes": [{"key": {"label": 1}, "name": "label_1", "unique": 1}]})
assert db["kinds"].index_information()["label_1"]["unique"]

# What does not exist is refused, not ignored.
collation = Collation("en", strength=2)
for bad in [
    lambda: list(items.find({"a": {"$near": [0, 0]}})),
    lambda: items.update_one({}, {"$frobnicate": {"a": 1}}),
    lambda: list(items.aggregate([{"$facet": {}}])),
    lambda: db.command("frobnicate"),
    lambda: items.create_index([("a", "text")]),
    lambda: items.create_index("a", partialFilterExpression={"a": 1}),
    lambda: list(items.find({}, {"tags.$": 1})),
    lambda: list(items.find(cursor_type=CursorType.TAILABLE)),
    lambda: list(items.find().collation(collation)),
    lambda: list(items.aggregate([], collation=collation)),
    lambda: items.update_one({}, {"$set": {"a": 1}}, collation=collation),
    lambda: items.delete_one({}, collation=collation),
    lambda: items.update_one({}, {"$set": {"a.$[]": 1}}, array_filters=[{"x": 1}]),
    lambda: items.update_one({}, [{"$set": {"a": 1}}]),
    lambda: list(items.watch()),
    lambda: db.create_collection("capped", capped=True, size=1),
    lambda: db.create_collection("view", viewOn="items", pipeline=[]),
]:
    try:
        bad()
        raise AssertionError("accepted")
    except OperationFailure:
        pass

assert set(db.list_collection_names()) == {"items", "users", "orders", "kinds"}
assert "shop" in client.list_database_names()
db.drop_collection("kinds")
client.drop_database("shop")
assert db.list_collection_names() == []
print("done")
