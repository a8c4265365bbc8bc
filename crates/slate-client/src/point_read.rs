//! MessagePack of point reads, written out.
//!
//! Look-ups come by the thousand, and their messages have one form. What has another, though equivalent, form is left
//! to serde.

/// Beginning of a look-up: a map with one entry.
pub(crate) const LOOK_UP: &[u8] = b"\x81\xa8FindById";
/// Fields of a look-up up to its collection: a map with two entries.
const COLLECTION: &[u8] = b"\x82\xaacollection";
/// Name of the field after it.
const ID: &[u8] = b"\xa2id";
/// A found document up to its bytes.
const DOCUMENT: &[u8] = b"\x81\xa8Document\x81\xa8document";
const NIL: u8 = 0xc0;

/// Appends a frame with a look-up.
pub(crate) fn encode_look_up(collection: &str, id: &[u8], frame: &mut Vec<u8>) {
    let from = begin(frame);
    frame.extend_from_slice(LOOK_UP);
    frame.extend_from_slice(COLLECTION);
    let name = collection.as_bytes();
    match name.len() {
        length @ ..32 => frame.push(0xa0 | length as u8),
        length @ ..0x100 => frame.extend_from_slice(&[0xd9, length as u8]),
        length @ ..0x1_0000 => {
            frame.push(0xda);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(0xdb);
            frame.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
    frame.extend_from_slice(name);
    frame.extend_from_slice(ID);
    push_bin(id, frame);
    end(frame, from);
}

/// Appends a frame with a found document, or with none.
pub(crate) fn encode_found(document: Option<&[u8]>, frame: &mut Vec<u8>) {
    let from = begin(frame);
    frame.extend_from_slice(DOCUMENT);
    match document {
        Some(document) => push_bin(document, frame),
        None => frame.push(NIL),
    }
    end(frame, from);
}

/// Decodes a look-up into collection and `_id`.
pub(crate) fn decode_look_up(message: &[u8]) -> Option<(&str, &[u8])> {
    let rest = message.strip_prefix(LOOK_UP)?.strip_prefix(COLLECTION)?;
    let (length, rest) = match rest {
        [length @ 0xa0..0xc0, rest @ ..] => (usize::from(length & 0x1f), rest),
        [0xd9, length, rest @ ..] => (usize::from(*length), rest),
        _ => return None,
    };
    let (collection, rest) = rest.split_at_checked(length)?;
    let id = take_bin(rest.strip_prefix(ID)?)?;
    Some((std::str::from_utf8(collection).ok()?, id))
}

/// Decodes a found document, or the answer that there is none.
pub(crate) fn decode_found(message: &[u8]) -> Option<Option<&[u8]>> {
    match message.strip_prefix(DOCUMENT)? {
        [NIL] => Some(None),
        rest => take_bin(rest).map(Some),
    }
}

fn begin(frame: &mut Vec<u8>) -> usize {
    frame.extend_from_slice(&[0; 4]);
    frame.len()
}

/// Writes the length of a frame whose message begins at `from`.
fn end(frame: &mut [u8], from: usize) {
    let length = u32::try_from(frame.len() - from).unwrap_or(u32::MAX);
    frame[from - 4..from].copy_from_slice(&length.to_be_bytes());
}

fn push_bin(bytes: &[u8], frame: &mut Vec<u8>) {
    match bytes.len() {
        length @ ..0x100 => frame.extend_from_slice(&[0xc4, length as u8]),
        length @ ..0x1_0000 => {
            frame.push(0xc5);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(0xc6);
            frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    frame.extend_from_slice(bytes);
}

/// Returns the bytes of a binary that ends with the message.
fn take_bin(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = match bytes {
        [0xc4, length, rest @ ..] => (usize::from(*length), rest),
        [0xc5, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [0xc6, a, b, c, d, rest @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return None,
    };
    (rest.len() == length).then_some(rest)
}
