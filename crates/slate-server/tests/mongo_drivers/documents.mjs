// What people do with Node's mongodb.
import assert from 'node:assert/strict';
import { MongoClient, ObjectId } from 'mongodb';

const client = new MongoClient(process.argv[2], { serverSelectionTimeoutMS: 5000 });
await client.connect();
const db = client.db('shop');
const items = db.collection('items');

const { insertedId } = await items.insertOne({ name: 'anchor', tags: ['iron'] });
assert(insertedId instanceof ObjectId);
await items.insertMany(Array.from({ length: 300 }, (_, n) => ({ _id: n, price: n % 5, at: new Date(n) })));
assert.equal(await items.countDocuments({ price: 2 }), 60);
assert.deepEqual((await items.findOne({ _id: 7 })).at, new Date(7));

let seen = 0;
for await (const item of items.find({ price: { $exists: true } }).sort({ _id: 1 }).batchSize(20)) {
  assert.equal(item._id, seen);
  seen += 1;
}
assert.equal(seen, 300);

const updated = await items.updateMany({ price: 1 }, { $set: { sale: true }, $max: { price: 3 } });
assert.equal(updated.modifiedCount, 60);
const upserted = await items.updateOne({ _id: 'new' }, { $addToSet: { tags: 'x' } }, { upsert: true });
assert.equal(upserted.upsertedId, 'new');
const before = await items.findOneAndUpdate({ _id: 'new' }, { $unset: { tags: '' } });
assert.deepEqual(before, { _id: 'new', tags: ['x'] });
const kept = await items.findOneAndUpdate({ _id: 8 }, { $set: { seen: 1 } }, { projection: { _id: 0, price: 1 } });
assert.deepEqual(kept, { price: 3 });
assert.equal((await items.deleteMany({ sale: true })).deletedCount, 60);

await items.createIndex({ price: 1 }, { name: 'by_price' });
const indexes = await items.indexes();
assert.deepEqual(indexes.map((index) => index.name), ['_id_', 'by_price']);
const plan = await items.find({ price: 4 }).explain('executionStats');
assert.equal(plan.executionStats.totalKeysExamined, 60);
await assert.rejects(items.insertOne({ _id: 7 }), { code: 11000 });

const groups = await items
  .aggregate([{ $match: { price: { $gte: 0 } } }, { $group: { _id: '$price', n: { $sum: 1 } } }, { $sort: { _id: 1 } }])
  .toArray();
assert.deepEqual(groups.map((group) => group._id), [0, 2, 3, 4]);

const bulk = await items.bulkWrite([
  { insertOne: { document: { _id: 'b' } } },
  { updateOne: { filter: { _id: 'b' }, update: { $set: { x: 1 } } } },
  { deleteOne: { filter: { _id: 'b' } } },
]);
assert.deepEqual([bulk.insertedCount, bulk.modifiedCount, bulk.deletedCount], [1, 1, 1]);
await db.dropDatabase();
await client.close();
console.log('done');
