//! Messages of DNS (RFC 1035): one question in, an answer out.

use std::net::Ipv4Addr;

/// Bytes of a message over TCP, and the most that is read over UDP.
pub(super) const MESSAGE_BYTES_MAX: usize = 65_535;
/// Bytes of an answer over UDP to a client that names no size.
const UDP_BYTES: usize = 512;
const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
/// Seconds that an answer may be kept.
const TTL: u32 = 5;
const CLASS_IN: u16 = 1;

/// Types of records.
pub(super) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const ANY: u16 = 255;
}

/// Response codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Success = 0,
    FormatError = 1,
    ServerFailure = 2,
    NoName = 3,
    NotImplemented = 4,
}

/// Data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    A(Ipv4Addr),
    Cname(String),
    Ptr(String),
    Txt(String),
    Srv { port: u16, target: String },
}

/// A record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) data: Data,
}

/// Answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: Code,
    pub(super) records: Vec<Record>,
    /// Records that the client will ask for next.
    pub(super) additional: Vec<Record>,
}

/// A query with its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    id: u16,
    recursion_desired: bool,
    /// Name in lower case, without the last dot.
    pub(super) name: String,
    pub(super) kind: u16,
    /// Question as it was sent, which the answer repeats.
    question: Vec<u8>,
    /// Bytes of an answer that the client can read over UDP.
    udp_bytes: usize,
}

impl Query {
    /// Parses a query. `Err` is the code to answer with; `None` there is nothing to answer to.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Option<(u16, Code)>> {
        let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let (Some(id), Some(flags)) = (word(0), word(2)) else { return Err(None) };
        // An answer is never answered.
        if flags & 0x8000 != 0 {
            return Err(None);
        }
        let bad = Err(Some((id, Code::FormatError)));
        if flags & 0x7800 != 0 {
            return Err(Some((id, Code::NotImplemented)));
        }
        let (Some(1), Some(additional)) = (word(4), word(10)) else { return bad };
        let Some((name, end)) = read_name(bytes, HEADER_BYTES) else { return bad };
        let (Some(kind), Some(_class)) = (word(end), word(end + 2)) else { return bad };
        let question = bytes.get(HEADER_BYTES..end + 4).unwrap_or_default().to_vec();
        // The pseudo-record of EDNS has an empty name; its class is the size.
        let udp_bytes = match (additional, bytes.get(end + 4), word(end + 5), word(end + 7)) {
            (1.., Some(0), Some(kind::OPT), Some(size)) => usize::from(size).max(UDP_BYTES),
            _ => UDP_BYTES,
        };
        Ok(Self { id, recursion_desired: flags & 0x0100 != 0, name, kind, question, udp_bytes })
    }

    /// Returns the message of an answer. Over UDP one that is too long is cut, and says so.
    pub(super) fn answer(&self, answer: &Answer, zone: &str, is_udp: bool) -> Vec<u8> {
        let is_empty = answer.records.is_empty() && matches!(answer.code, Code::Success | Code::NoName);
        let mut body = self.question.clone();
        for record in answer.records.iter().chain(&answer.additional) {
            write_record(&mut body, record);
        }
        if is_empty {
            write_authority(&mut body, zone);
        }
        let limit = if is_udp { self.udp_bytes } else { MESSAGE_BYTES_MAX };
        let is_cut = HEADER_BYTES + body.len() > limit;
        let counts = if is_cut {
            body.clone_from(&self.question);
            [1, 0, 0, 0]
        } else {
            [1, answer.records.len(), usize::from(is_empty), answer.additional.len()]
        };
        let flags = 0x8000
            | 0x0400
            | (u16::from(is_cut) << 9)
            | (u16::from(self.recursion_desired) << 8)
            | 0x0080
            | answer.code as u16;
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend(self.id.to_be_bytes());
        message.extend(flags.to_be_bytes());
        for count in counts {
            message.extend(u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
        }
        message.extend(body);
        message
    }
}

/// Returns the message of an error without a question.
pub(super) fn refusal(id: u16, code: Code) -> Vec<u8> {
    let flags: u16 = 0x8000 | 0x0080 | code as u16;
    let mut message = [id.to_be_bytes(), flags.to_be_bytes()].concat();
    message.resize(HEADER_BYTES, 0);
    message
}

/// Reads a name without compression, as questions have it. Returns it with the position behind it.
fn read_name(bytes: &[u8], start: usize) -> Option<(String, usize)> {
    let mut labels: Vec<String> = Vec::new();
    let mut at = start;
    loop {
        let length = usize::from(*bytes.get(at)?);
        if length == 0 {
            return Some((labels.join("."), at + 1));
        }
        if length > LABEL_BYTES_MAX || at - start + length > NAME_BYTES_MAX {
            return None;
        }
        let label = bytes.get(at + 1..at + 1 + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += 1 + length;
    }
}

fn write_name(message: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(LABEL_BYTES_MAX)];
        message.push(u8::try_from(label.len()).unwrap_or_default());
        message.extend(label);
    }
    message.push(0);
}

fn write_record(message: &mut Vec<u8>, record: &Record) {
    let mut data = Vec::new();
    let kind = match &record.data {
        Data::A(address) => {
            data.extend(address.octets());
            kind::A
        }
        Data::Cname(name) => {
            write_name(&mut data, name);
            kind::CNAME
        }
        Data::Ptr(name) => {
            write_name(&mut data, name);
            kind::PTR
        }
        Data::Txt(text) => {
            let text = &text.as_bytes()[..text.len().min(255)];
            data.push(u8::try_from(text.len()).unwrap_or_default());
            data.extend(text);
            kind::TXT
        }
        Data::Srv { port, target } => {
            // Priority and weight as CoreDNS gives them to a single service.
            for number in [0, 100, *port] {
                data.extend(u16::to_be_bytes(number));
            }
            write_name(&mut data, target);
            kind::SRV
        }
    };
    write_raw(message, &record.name, kind, &data);
}

/// Writes the start of authority of the cluster's zone: clients keep for so long that a name does not exist.
fn write_authority(message: &mut Vec<u8>, zone: &str) {
    let mut data = Vec::new();
    write_name(&mut data, &format!("ns.dns.{zone}"));
    write_name(&mut data, &format!("hostmaster.{zone}"));
    for number in [1, 7200, 1800, 86_400, TTL] {
        data.extend(u32::to_be_bytes(number));
    }
    write_raw(message, zone, kind::SOA, &data);
}

fn write_raw(message: &mut Vec<u8>, name: &str, kind: u16, data: &[u8]) {
    write_name(message, name);
    message.extend(kind.to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    message.extend(TTL.to_be_bytes());
    message.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    message.extend(data);
}

#[cfg(test)]
pub(super) fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    write_name(&mut message, name);
    message.extend(kind.to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(records: usize) -> Answer {
        let record = Record { name: "a.b".into(), data: Data::A(Ipv4Addr::LOCALHOST) };
        Answer { code: Code::Success, records: vec![record; records], additional: Vec::new() }
    }

    #[test]
    fn answer_repeats_the_question() {
        let query = Query::parse(&query("A.b", kind::A)).unwrap();
        assert_eq!((query.name.as_str(), query.kind), ("a.b", kind::A));
        let message = query.answer(&answer(1), "cluster.local", true);
        assert_eq!(message[..12], [0x12, 0x34, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(message[12..21], [1, b'A', 1, b'b', 0, 0, 1, 0, 1]);
        assert!(message.ends_with(&[0, 4, 127, 0, 0, 1]));
    }

    #[test]
    fn long_answer_over_udp_is_cut_and_says_so() {
        let query = Query::parse(&query("a.b", kind::A)).unwrap();
        let cut = query.answer(&answer(100), "cluster.local", true);
        assert_eq!((cut[2] & 2, cut.len()), (2, 21));
        assert!(query.answer(&answer(100), "cluster.local", false).len() > UDP_BYTES);
    }

    #[test]
    fn damaged_queries_are_refused() {
        assert_eq!(Query::parse(&[1]), Err(None));
        let whole = query("name.example", kind::A);
        for length in 12..whole.len() {
            assert_eq!(Query::parse(&whole[..length]), Err(Some((0x1234, Code::FormatError))), "{length}");
        }
        let mut answer = whole.clone();
        answer[2] |= 0x80;
        assert_eq!(Query::parse(&answer), Err(None));
        let mut compressed = whole;
        compressed[12] = 0xc0;
        assert!(Query::parse(&compressed).is_err());
    }
}
