//! Limits on what a stage holds, and on the time that a pipeline takes.

use std::time::Instant;

use bson::{Bson, Document};

use crate::{
    deadline::Deadline,
    document::DOCUMENT_LEN_MAX,
    error::{Error, Result},
};

/// Most documents that a stage may hold.
const DOCUMENTS_MAX: usize = 1_000_000;
/// Most bytes that a stage may hold.
const BYTES_MAX: usize = 256 << 20;

/// The documents and bytes that a stage holds.
#[derive(Debug)]
pub(super) struct Budget {
    deadline: Deadline,
    documents: usize,
    bytes: usize,
}

impl Budget {
    /// Begins a stage. An error if the time is over already.
    pub(super) fn new(deadline: Option<Instant>) -> Result<Self> {
        let deadline = Deadline::new(deadline);
        deadline.check()?;
        Ok(Self { deadline, documents: 0, bytes: 0 })
    }

    /// Charges a document, and checks every limit on it.
    pub(super) fn charge(&mut self, document: &Document) -> Result<()> {
        let length = document_len(document);
        check_document_len(length)?;
        self.documents += 1;
        self.charge_bytes(length)
    }

    /// Charges bytes that belong to a document which is charged elsewhere.
    pub(super) fn charge_bytes(&mut self, length: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(length);
        if self.documents > DOCUMENTS_MAX || self.bytes > BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "a pipeline stage holds at most {DOCUMENTS_MAX} documents and {BYTES_MAX} bytes"
            )));
        }
        self.tick()
    }

    /// Checks the time limit, now and then.
    pub(super) fn tick(&mut self) -> Result<()> {
        self.deadline.tick(1)
    }
}

/// Checks the length of a document, or of a value that will be part of one.
pub(super) fn check_document_len(length: usize) -> Result<()> {
    if length > DOCUMENT_LEN_MAX {
        return Err(Error::TooLarge(format!("a document has at most {DOCUMENT_LEN_MAX} bytes")));
    }
    Ok(())
}

/// Returns the length of a document in BSON, without encoding it; exact but for rare types.
pub(super) fn document_len(document: &Document) -> usize {
    let element = |(name, value): (&String, &Bson)| name.len() + 2 + value_len(value);
    5 + document.iter().map(element).sum::<usize>()
}

/// Returns the length of a value in BSON.
pub(super) fn value_len(value: &Bson) -> usize {
    match value {
        Bson::Document(document) => document_len(document),
        Bson::Array(values) => {
            // Elements are named by their position.
            let digits = |position: usize| position.checked_ilog10().unwrap_or(0) as usize + 1;
            let element = |(position, value): (usize, &Bson)| digits(position) + 2 + value_len(value);
            5 + values.iter().enumerate().map(element).sum::<usize>()
        }
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => text.len() + 5,
        Bson::Binary(binary) => binary.bytes.len() + 5,
        Bson::RegularExpression(regex) => regex.pattern.as_str().len() + regex.options.as_str().len() + 2,
        Bson::JavaScriptCodeWithScope(code) => code.code.len() + 9 + document_len(&code.scope),
        Bson::Null | Bson::Undefined | Bson::MinKey | Bson::MaxKey => 0,
        Bson::Boolean(_) => 1,
        Bson::Int32(_) => 4,
        Bson::Decimal128(_) => 16,
        Bson::ObjectId(_) => 12,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn document_len_is_that_of_the_encoding() {
        let documents = [
            doc! {},
            doc! { "a": 1, "b": 2_i64, "c": 1.5, "d": "ä", "e": null, "f": true },
            doc! { "list": (0..120).collect::<Vec<i32>>(), "inner": { "x": [{}, []] } },
            doc! { "id": bson::oid::ObjectId::new(), "at": bson::DateTime::now(), "least": Bson::MinKey },
            doc! { "bytes": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1; 7] }) },
            doc! { "decimal": Bson::Decimal128("1.5".parse().expect("a number")), "code": Bson::JavaScriptCode("f".to_owned()) },
        ];
        for document in documents {
            assert_eq!(document_len(&document), document.to_vec().expect("BSON").len(), "{document}");
        }
    }
}
