//! `OP_MSG`, and the `OP_QUERY` that drivers greet with.

use bson::{Bson, Document, RawDocumentBuf};
use slate::{Error, Result};

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;
const HEADER_LEN: usize = 16;
/// Largest message, as announced by `hello`.
pub(super) const MESSAGE_LEN_MAX: usize = 48_000_000;
const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
/// Bits that a server must understand.
const REQUIRED_BITS: u32 = 0xffff;

/// Length of the message that a buffer begins with.
pub(super) enum Head {
    /// More bytes are needed: for a message of this length, if it is known.
    Incomplete(Option<usize>),
    Complete(usize),
    Invalid(&'static str),
}

pub(super) fn head(buffer: &[u8], max: usize) -> Head {
    let Some(length) = buffer.first_chunk::<4>() else { return Head::Incomplete(None) };
    match usize::try_from(i32::from_le_bytes(*length)) {
        Ok(length) if (HEADER_LEN..=max).contains(&length) => {
            if buffer.len() < length {
                Head::Incomplete(Some(length))
            } else {
                Head::Complete(length)
            }
        }
        _ => Head::Invalid("a message's length is out of range"),
    }
}

/// A command and the documents that came beside it.
#[derive(Debug)]
pub(super) struct Message {
    id: i32,
    legacy: bool,
    /// The client wants no answer.
    pub(super) more_to_come: bool,
    pub(super) body: Document,
    /// Documents of a section of kind 1, with its name.
    pub(super) sequences: Vec<(String, Vec<RawDocumentBuf>)>,
}

impl Message {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        reader.take(4)?;
        let id = reader.i32()?;
        reader.take(4)?;
        match reader.i32()? {
            OP_MSG => Self::parse_msg(id, reader),
            OP_QUERY => Self::parse_query(id, reader),
            other => Err(Error::invalid(format!("opcode {other} is not supported"))),
        }
    }

    fn parse_msg(id: i32, mut reader: Reader<'_>) -> Result<Self> {
        let flags = reader.i32()?.cast_unsigned();
        if flags & REQUIRED_BITS & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
            return Err(Error::invalid("unknown required flag in OP_MSG"));
        }
        if flags & CHECKSUM_PRESENT != 0 {
            let end = reader.0.len().checked_sub(4).ok_or_else(truncated)?;
            reader.0 = &reader.0[..end];
        }
        let (mut body, mut sequences) = (None, Vec::new());
        while !reader.0.is_empty() {
            match reader.take(1)?[0] {
                0 => body = Some(decode(reader.document()?)?),
                1 => {
                    let length = usize::try_from(reader.i32()?).map_err(|_| truncated())?;
                    let mut section = Reader(reader.take(length.checked_sub(4).ok_or_else(truncated)?)?);
                    let name = section.text()?;
                    let mut documents = Vec::new();
                    while !section.0.is_empty() {
                        let document = section.document()?.to_vec();
                        let document = RawDocumentBuf::from_bytes(document)
                            .map_err(|error| Error::invalid(error.to_string()))?;
                        documents.push(document);
                    }
                    sequences.push((name, documents));
                }
                kind => return Err(Error::invalid(format!("section kind {kind} is not supported"))),
            }
        }
        let body = body.ok_or_else(|| Error::invalid("a message without a body"))?;
        Ok(Self { id, legacy: false, more_to_come: flags & MORE_TO_COME != 0, body, sequences })
    }

    fn parse_query(id: i32, mut reader: Reader<'_>) -> Result<Self> {
        reader.take(4)?;
        let name = reader.text()?;
        reader.take(8)?;
        let mut body = decode(reader.document()?)?;
        let database =
            name.strip_suffix(".$cmd").ok_or_else(|| Error::invalid("OP_QUERY is for commands only"))?;
        body.insert("$db", database);
        Ok(Self { id, legacy: true, more_to_come: false, body, sequences: Vec::new() })
    }

    /// Returns the command's name: its first field.
    pub(super) fn command(&self) -> &str {
        self.body.keys().next().map_or("", String::as_str)
    }

    /// Returns the documents under a name, from beside the body or from within it.
    pub(super) fn take_documents(&mut self, name: &str) -> Result<Vec<RawDocumentBuf>> {
        if let Some(position) = self.sequences.iter().position(|(sequence, _)| sequence == name) {
            return Ok(self.sequences.swap_remove(position).1);
        }
        let Some(Bson::Array(list)) = self.body.remove(name) else {
            return Err(Error::invalid(format!("BSON field '{name}' is missing but a required field")));
        };
        list.iter()
            .map(|value| match value {
                Bson::Document(document) => {
                    RawDocumentBuf::try_from(document).map_err(|error| Error::invalid(error.to_string()))
                }
                _ => Err(Error::invalid(format!("'{name}' must be an array of documents"))),
            })
            .collect()
    }

    /// Encodes an answer to this message.
    pub(super) fn answer(id: i32, legacy: bool, body: &[u8]) -> Vec<u8> {
        let prefix: &[u8] = if legacy {
            // Flags, cursor, start, number of documents.
            &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
        } else {
            // Flags, and a section of kind 0.
            &[0, 0, 0, 0, 0]
        };
        let length = HEADER_LEN + prefix.len() + body.len();
        let mut bytes = Vec::with_capacity(length);
        // At most a batch and its envelope, far below 2 GiB.
        bytes.extend_from_slice(&(length as i32).to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&if legacy { OP_REPLY } else { OP_MSG }.to_le_bytes());
        bytes.extend_from_slice(prefix);
        bytes.extend_from_slice(body);
        bytes
    }

    pub(super) fn reply_header(&self) -> (i32, bool) {
        (self.id, self.legacy)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn i32(&mut self) -> Result<i32> {
        let (bytes, rest) = self.0.split_first_chunk::<4>().ok_or_else(truncated)?;
        self.0 = rest;
        Ok(i32::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(truncated)?;
        let text = self.take(end + 1)?;
        String::from_utf8(text[..end].to_vec()).map_err(|error| Error::invalid(error.to_string()))
    }

    fn document(&mut self) -> Result<&'a [u8]> {
        let length = self.0.first_chunk::<4>().ok_or_else(truncated)?;
        let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| truncated())?;
        self.take(length)
    }
}

fn decode(bytes: &[u8]) -> Result<Document> {
    slate::document::parse(bytes)?;
    Document::from_reader(bytes).map_err(|error| Error::invalid(error.to_string()))
}

fn truncated() -> Error {
    Error::invalid("a message is truncated")
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use proptest::prelude::*;

    use super::*;

    /// Encodes a command as a driver does.
    fn encode(flags: u32, sections: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&7_i32.to_le_bytes());
        bytes.extend_from_slice(&0_i32.to_le_bytes());
        bytes.extend_from_slice(&OP_MSG.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(sections);
        let length = (bytes.len() as i32).to_le_bytes();
        bytes[..4].copy_from_slice(&length);
        bytes
    }

    #[test]
    fn body_and_sequences_are_read_in_any_order() {
        let body = doc! { "insert": "c", "$db": "d" }.to_vec().expect("BSON");
        let document = doc! { "_id": 1 }.to_vec().expect("BSON");
        let mut sequence = b"documents\0".to_vec();
        sequence.extend_from_slice(&document);
        let length = (sequence.len() as i32 + 4).to_le_bytes();
        let sections = [&[1][..], &length, &sequence, &[0], &body].concat();
        let mut message = Message::parse(&encode(MORE_TO_COME, &sections)).expect("a message");
        assert!(message.more_to_come && message.command() == "insert");
        assert_eq!(message.take_documents("documents").expect("documents").len(), 1);
        assert!(message.take_documents("deletes").is_err());
        assert!(Message::parse(&encode(1 << 5, &sections)).is_err(), "an unknown required flag");
        assert!(Message::parse(&encode(0, &[])).is_err(), "no body");
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_read() {
        assert!(matches!(head(&[0xff, 0xff, 0xff, 0x7f], MESSAGE_LEN_MAX), Head::Invalid(_)));
        assert!(matches!(head(&[0xff, 0xff, 0xff, 0xff], MESSAGE_LEN_MAX), Head::Invalid(_)));
        assert!(matches!(head(&[15, 0, 0, 0], MESSAGE_LEN_MAX), Head::Invalid(_)));
        assert!(matches!(head(&[16, 0, 0, 0], MESSAGE_LEN_MAX), Head::Incomplete(Some(16))));
    }

    proptest! {
        #[test]
        fn arbitrary_messages_fail_without_panic(flags in any::<u32>(), sections in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Message::parse(&encode(flags, &sections));
            let _ = Message::parse(&sections);
            let _ = head(&sections, MESSAGE_LEN_MAX);
        }

        #[test]
        fn truncated_and_flipped_messages_fail_without_panic(cut in 0_usize..60, flip in 0_usize..60, bit in 0_u8..8) {
            let body = doc! { "find": "c", "filter": { "a": [1, "x"] }, "$db": "d" }.to_vec().expect("BSON");
            let mut bytes = encode(0, &[&[0][..], &body].concat());
            let position = flip % bytes.len();
            bytes[position] ^= 1 << bit;
            bytes.truncate(bytes.len().saturating_sub(cut));
            let _ = Message::parse(&bytes);
        }
    }
}
