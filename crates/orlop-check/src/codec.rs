//! Text encoding of outcomes, for a process that may be killed while it writes one.

use bytes::Bytes;
use orlop_store::{Error, KeyValue, OpResult, ReadResult, TxnResult};

use crate::Outcome;

/// Encodes an outcome as one line without a line break.
pub fn encode_outcome(outcome: &Outcome) -> String {
    let mut words = Vec::new();
    match outcome {
        Outcome::Txn(result) => txn(&mut words, result),
        Outcome::Read(result) => read(&mut words, result),
        Outcome::Compacted => words.push("C".into()),
        Outcome::Refused(Error::Expired { compacted }) => words.extend(["E".into(), compacted.to_string()]),
        Outcome::Refused(Error::FutureRevision { requested, current }) => {
            words.extend(["F".into(), requested.to_string(), current.to_string()]);
        }
        Outcome::Refused(Error::DuplicateKey { key }) => words.extend(["K".into(), hex(key)]),
        Outcome::Refused(other) => words.extend(["X".into(), hex(other.to_string().as_bytes())]),
        Outcome::Unknown => words.push("U".into()),
    }
    words.join(" ")
}

/// Decodes a line; `None` if it is truncated.
pub fn decode_outcome(line: &str) -> Option<Outcome> {
    let mut words = Words(line.split(' '));
    let outcome = match words.0.next()? {
        "T" => Outcome::Txn(words.txn()?),
        "R" => Outcome::Read(words.read()?),
        "C" => Outcome::Compacted,
        "E" => Outcome::Refused(Error::Expired { compacted: words.number()? }),
        "F" => {
            Outcome::Refused(Error::FutureRevision { requested: words.number()?, current: words.number()? })
        }
        "K" => Outcome::Refused(Error::DuplicateKey { key: words.bytes()? }),
        "X" => Outcome::Refused(Error::Invalid(String::from_utf8_lossy(&words.bytes()?).into_owned())),
        "U" => Outcome::Unknown,
        _ => return None,
    };
    words.0.next().is_none().then_some(outcome)
}

fn hex(bytes: &[u8]) -> String {
    // The length distinguishes an empty value from a missing one, and detects truncation.
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{digits}", bytes.len())
}

fn kv(words: &mut Vec<String>, kv: &KeyValue) {
    words.extend([hex(&kv.key), hex(&kv.value)]);
    words.extend([kv.create_revision, kv.revision, kv.version, kv.lease].map(|number| number.to_string()));
}

fn kvs(words: &mut Vec<String>, list: &[KeyValue]) {
    words.push(list.len().to_string());
    list.iter().for_each(|item| kv(words, item));
}

fn read(words: &mut Vec<String>, result: &ReadResult) {
    let count = result.count.map_or(-1, |count| count as i64);
    words.extend([
        "R".into(),
        result.revision.to_string(),
        u8::from(result.more).to_string(),
        count.to_string(),
    ]);
    kvs(words, &result.kvs);
}

fn txn(words: &mut Vec<String>, result: &TxnResult) {
    words.extend(["T".into(), result.revision.to_string(), u8::from(result.succeeded).to_string()]);
    words.push(result.results.len().to_string());
    for result in &result.results {
        match result {
            OpResult::Put(previous) => {
                words.push("P".into());
                kvs(words, previous.as_slice());
            }
            OpResult::Delete { deleted, previous } => {
                words.extend(["D".into(), deleted.to_string()]);
                kvs(words, previous);
            }
            OpResult::Read(result) => read(words, result),
            OpResult::Txn(result) => txn(words, result),
        }
    }
}

struct Words<'a>(std::str::Split<'a, char>);

impl Words<'_> {
    fn number(&mut self) -> Option<i64> {
        self.0.next()?.parse().ok()
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let (length, digits) = self.0.next()?.split_once(':')?;
        let pairs = digits.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> =
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
        bytes.filter(|bytes| length.parse() == Ok(bytes.len())).map(Bytes::from)
    }

    fn kvs(&mut self) -> Option<Vec<KeyValue>> {
        let length = self.number()?;
        let mut list = Vec::new();
        for _ in 0..length {
            list.push(KeyValue {
                key: self.bytes()?,
                value: self.bytes()?,
                create_revision: self.number()?,
                revision: self.number()?,
                version: self.number()?,
                lease: self.number()?,
                stale: false,
            });
        }
        Some(list)
    }

    fn read(&mut self) -> Option<ReadResult> {
        let (revision, more, count) = (self.number()?, self.number()? == 1, self.number()?);
        Some(ReadResult { revision, more, count: u64::try_from(count).ok(), kvs: self.kvs()? })
    }

    fn txn(&mut self) -> Option<TxnResult> {
        let (revision, succeeded, length) = (self.number()?, self.number()? == 1, self.number()?);
        let mut results = Vec::new();
        for _ in 0..length {
            results.push(match self.0.next()? {
                "P" => OpResult::Put(self.kvs()?.pop()),
                "D" => {
                    let deleted = u64::try_from(self.number()?).ok()?;
                    OpResult::Delete { deleted, previous: self.kvs()? }
                }
                "R" => OpResult::Read(self.read()?),
                "T" => OpResult::Txn(self.txn()?),
                _ => return None,
            });
        }
        Some(TxnResult { revision, succeeded, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Request, RequestGenerator, workload::ClientState};

    #[test]
    fn outcomes_round_trip_and_truncated_lines_are_detected() {
        let (mut model, mut state) = (Model::default(), ClientState::default());
        let mut written = 0;
        for number in 0..400 {
            let generator = RequestGenerator::new(7, 1, number);
            let request = generator.clone().request(state.hint(generator.key()));
            let outcome = match &request {
                Request::Txn(txn) => model.run(txn).map_or_else(Outcome::Refused, Outcome::Txn),
                Request::Read(read) => {
                    model.read(read, model.revision()).map_or_else(Outcome::Refused, Outcome::Read)
                }
                Request::Compact(_) => Outcome::Compacted,
            };
            state.observe(&request, &outcome);
            let line = encode_outcome(&outcome);
            assert_eq!(decode_outcome(&line).as_ref(), Some(&outcome));
            let cut = &line[..line.len() - 1];
            assert_ne!(decode_outcome(cut).as_ref(), Some(&outcome), "{line}");
            written += usize::from(matches!(outcome, Outcome::Txn(_)));
        }
        assert!(written > 200, "{written}");
    }
}
