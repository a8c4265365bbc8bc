//! Generation of requests: few keys for contention, and every shape of request.

use bytes::Bytes;
use orlop_store::{
    Compare, Comparison, Delete, Filter, KeyRange, Op, Put, Read, Requirement, Revision, Select, Target,
    Terms, Txn,
};

use crate::{Random, Request};

/// Returns the contended keys. Some are prefixes of others; some contain unusual bytes.
pub fn keys() -> Vec<Bytes> {
    let keys: [&'static [u8]; 8] =
        [b"/k/1", b"/k/10", b"/k/1\0", b"/k/2", b"/k/2/\xff", b"/k/\xff\xff", b"/l", b"\xff\xff"];
    keys.into_iter().map(Bytes::from_static).collect()
}

const COLORS: [&str; 3] = ["red", "green", "blue"];

/// Observed state that a request may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The newest observed revision.
    pub newest: Revision,
    /// The last observed revision of the key; 0 if absent.
    pub key: Revision,
}

/// Generates one request of one client, determined by three numbers and the hint.
#[derive(Clone, Debug)]
pub struct RequestGenerator {
    random: Random,
    key: Bytes,
    value: Bytes,
}

impl RequestGenerator {
    /// Creates the generator of a client's `number`th request.
    pub fn new(seed: u64, client: u64, number: u64) -> Self {
        let mut random = Random::new(&[seed, client, number]);
        let key = random.one_of(&keys()).clone();
        // Values are unique.
        Self { random, key, value: format!("{client}.{number}").into() }
    }

    /// Returns the key that the hint refers to.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// Generates the request.
    pub fn request(mut self, hint: Hint) -> Request {
        let key = self.key.clone();
        match self.random.below(100) {
            0..20 => Request::Txn(Txn::of([Op::Put(self.put(&key))])),
            20..36 => Request::Txn(Txn::replace(self.put(&key), hint.key)),
            36..42 => Request::Txn(Txn::create(self.put(&key))),
            42..50 => Request::Txn(Txn::remove(key, hint.key)),
            50..55 => Request::Txn(Txn::of([self.delete()])),
            55..70 => Request::Txn(self.many()),
            70..76 => Request::Txn(self.nested(hint)),
            76..78 => Request::Txn(Txn::of([Op::Put(self.put(&key)), Op::Put(self.put(&key))])),
            78..90 => Request::Read(self.read()),
            _ => {
                let revision = (hint.newest + self.random.between(-100, 10)).max(1);
                Request::Read(Read { revision: Some(revision), ..self.read() })
            }
        }
    }

    fn put(&mut self, key: &Bytes) -> Put {
        let terms = match self.random.below(4) {
            0 => Terms::none(),
            1 => Terms::new([("color", *self.random.one_of(&COLORS)), ("size", "large")]),
            _ => Terms::new([("color", *self.random.one_of(&COLORS))]),
        };
        let previous = self.random.percent(30);
        Put { terms, previous, ..Put::new(key.clone(), self.value.clone()) }
    }

    fn delete(&mut self) -> Op {
        let previous = self.random.percent(50);
        Op::Delete(Delete { range: self.range(), previous })
    }

    fn range(&mut self) -> KeyRange {
        match self.random.below(8) {
            0 => KeyRange::all(),
            1 => KeyRange::prefix("/k/"),
            2 => KeyRange::prefix("/k/1"),
            3 => KeyRange::between("/k/2", "/l"),
            4 => KeyRange::starting_at("/k/2"),
            _ => KeyRange::key(self.random.one_of(&keys()).clone()),
        }
    }

    fn filter(&mut self) -> Filter {
        let color = (*self.random.one_of(&COLORS)).to_owned();
        let requirement = match self.random.below(6) {
            0 => Requirement::equals("color", color),
            1 => Requirement::not_equals("color", color),
            2 => Requirement::In("color".into(), vec![color, "red".into()]),
            3 => Requirement::Exists("size".into()),
            4 => Requirement::Absent("color".into()),
            _ => {
                return Filter(vec![Requirement::Exists("size".into()), Requirement::equals("color", color)]);
            }
        };
        Filter(vec![requirement])
    }

    fn read(&mut self) -> Read {
        let range = self.range();
        match self.random.below(6) {
            0 => Read::count(range),
            1 => Read { limit: 2, count: true, ..Read::new(range) },
            2 => Read { limit: 1, select: Select::Keys, ..Read::new(range) },
            3 => Read { filter: self.filter(), count: true, limit: 2, ..Read::new(range) },
            4 => Read { filter: self.filter(), ..Read::new(range) },
            _ => Read::new(range),
        }
    }

    /// Generates puts and deletes of several keys, with reads that must see the earlier operations.
    fn many(&mut self) -> Txn {
        let all = keys();
        let first = self.random.below(all.len() as u64) as usize;
        let chosen = [0, 3, 5].map(|step| all[(first + step) % all.len()].clone());
        let mut ops = vec![Op::Put(self.put(&chosen[0])), Op::Read(self.read())];
        if self.random.percent(60) {
            ops.push(Op::Put(self.put(&chosen[1])));
        }
        ops.push(Op::Delete(Delete { range: KeyRange::key(chosen[2].clone()), previous: true }));
        ops.push(Op::Read(self.read()));
        Txn::of(ops)
    }

    fn nested(&mut self, hint: Hint) -> Txn {
        let all = keys();
        let other = all[(all.iter().position(|key| *key == self.key).unwrap_or(0) + 2) % all.len()].clone();
        let exists = Compare::new(KeyRange::key(self.key.clone()), Comparison::Greater, Target::Version(0));
        let unchanged =
            Compare::new(KeyRange::key(other.clone()), Comparison::Less, Target::Revision(hint.newest));
        let inner = Txn {
            compares: vec![unchanged],
            then: vec![Op::Put(self.put(&other)), Op::Read(self.read())],
            otherwise: vec![Op::Delete(Delete { range: KeyRange::key(other), previous: true })],
        };
        let kept = Put { keep_value: true, ..Put::new(self.key.clone(), "") };
        Txn {
            compares: vec![exists],
            then: vec![Op::Txn(inner), Op::Put(kept), Op::Read(self.read())],
            otherwise: vec![Op::Read(self.read())],
        }
    }

    /// Generates a watch that starts shortly before or after a revision, or now.
    pub fn watch(mut self, newest: Revision) -> crate::WatchSpec {
        let after = self.random.percent(85).then(|| (newest + self.random.between(-100, 30)).max(0));
        let filter = if self.random.percent(50) { self.filter() } else { Filter::everything() };
        let range = if self.random.percent(30) { KeyRange::all() } else { self.range() };
        crate::WatchSpec { range, filter, after, previous: self.random.percent(60) }
    }
}
