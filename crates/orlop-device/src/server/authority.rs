//! Lets gRPC clients written in C, C++, Python, Ruby or PHP in over a unix socket.
//!
//! Those clients put the socket's path, percent-encoded, into HTTP/2's `:authority`. The HTTP library of
//! this server refuses a `%` there and resets the stream. Nothing here reads the authority, so its `%` are
//! turned into `-` as the bytes come in: the length stays the same, and with it all that HTTP/2 counts.
//!
//! This follows HTTP/2's frames (RFC 9113 §4.1) to the header blocks and in them the fields (RFC 7541 §6),
//! a byte at a time, without keeping any. Values in Huffman's code are left alone, since the clients that
//! use it send plain names. Whatever it does not understand it leaves to the library to refuse.

const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
const NAME: &[u8] = b":authority";
/// The name's place in HPACK's static table.
const NAME_INDEX: usize = 1;

/// Where in the stream of frames the next byte is.
#[derive(Debug)]
enum Frame {
    Header {
        bytes: [u8; FRAME_HEADER_BYTES],
        have: usize,
    },
    /// The length of the padding at the end of a block, after which `prefix` and `block` bytes follow.
    PadLength {
        prefix: usize,
        block: usize,
    },
    /// What comes before a block.
    Prefix {
        left: usize,
        block: usize,
        padding: usize,
    },
    Block {
        left: usize,
        padding: usize,
    },
    Skip {
        left: usize,
    },
}

/// Where in a block of header fields the next byte is.
#[derive(Debug)]
enum Field {
    Start,
    /// A number goes on; what it is of.
    Number {
        of: Number,
        value: usize,
        shift: u32,
    },
    /// The length of a name begins.
    NameLength,
    Name {
        left: usize,
        matched: Option<usize>,
    },
    /// The length of a value begins.
    ValueLength {
        authority: bool,
    },
    Value {
        left: usize,
        mend: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Number {
    /// Of no consequence here: an indexed field, or the size of the table.
    Other,
    NameIndex,
    NameLength {
        plain: bool,
    },
    ValueLength {
        mend: bool,
    },
}

/// Follows one connection.
#[derive(Debug)]
pub(crate) struct Authority {
    frame: Frame,
    field: Field,
    /// Something was not understood: everything passes as it is from here on.
    lost: bool,
}

impl Default for Authority {
    fn default() -> Self {
        Self { frame: Frame::Skip { left: PREFACE_BYTES }, field: Field::Start, lost: false }
    }
}

fn next_frame() -> Frame {
    Frame::Header { bytes: [0; FRAME_HEADER_BYTES], have: 0 }
}

impl Authority {
    /// Looks at the bytes that came in, in order, and mends what has to be.
    pub(crate) fn mend(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() && !self.lost {
            let taken = match &mut self.frame {
                Frame::Skip { left } | Frame::Prefix { left, .. } => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    taken
                }
                Frame::Header { bytes: header, have } => {
                    header[*have] = bytes[0];
                    *have += 1;
                    1
                }
                Frame::PadLength { prefix, block } => {
                    let padding = usize::from(bytes[0]);
                    let (prefix, block) = (*prefix, block.checked_sub(padding));
                    match block {
                        Some(block) => self.frame = Frame::Prefix { left: prefix, block, padding },
                        None => self.lost = true,
                    }
                    1
                }
                Frame::Block { left, .. } => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    for byte in &mut bytes[..taken] {
                        self.field(byte);
                    }
                    taken
                }
            };
            self.advance();
            bytes = &mut bytes[taken..];
        }
    }

    /// Moves on when a part of a frame is complete; parts may be empty.
    fn advance(&mut self) {
        loop {
            self.frame = match &self.frame {
                Frame::Header { bytes, have } if *have == FRAME_HEADER_BYTES => self.opened(*bytes),
                Frame::Prefix { left: 0, block, padding } => Frame::Block { left: *block, padding: *padding },
                Frame::Block { left: 0, padding } => Frame::Skip { left: *padding },
                Frame::Skip { left: 0 } => next_frame(),
                _ => return,
            };
        }
    }

    fn opened(&mut self, header: [u8; FRAME_HEADER_BYTES]) -> Frame {
        let [l2, l1, l0, kind, flags, ..] = header;
        let length = usize::from(l2) << 16 | usize::from(l1) << 8 | usize::from(l0);
        match kind {
            CONTINUATION => Frame::Block { left: length, padding: 0 },
            HEADERS => {
                self.field = Field::Start;
                let prefix = if flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
                let pad_length = usize::from(flags & PADDED != 0);
                match length.checked_sub(prefix + pad_length) {
                    Some(block) if pad_length == 1 => Frame::PadLength { prefix, block },
                    Some(block) => Frame::Prefix { left: prefix, block, padding: 0 },
                    None => {
                        self.lost = true;
                        Frame::Skip { left: length }
                    }
                }
            }
            _ => Frame::Skip { left: length },
        }
    }

    /// Looks at one byte of a block.
    fn field(&mut self, byte: &mut u8) {
        let bits = *byte;
        self.field = match &mut self.field {
            Field::Start if bits & 0x80 != 0 => number(Number::Other, bits, 7),
            Field::Start if bits & 0x40 != 0 => number(Number::NameIndex, bits, 6),
            Field::Start if bits & 0x20 != 0 => number(Number::Other, bits, 5),
            Field::Start => number(Number::NameIndex, bits, 4),
            Field::NameLength => number(Number::NameLength { plain: bits & 0x80 == 0 }, bits, 7),
            Field::ValueLength { authority } => {
                number(Number::ValueLength { mend: *authority && bits & 0x80 == 0 }, bits, 7)
            }
            Field::Number { of, value, shift } => {
                // Longer than any length that fits a frame.
                if *shift > 21 {
                    self.lost = true;
                    return;
                }
                *value += usize::from(bits & 0x7f) << *shift;
                *shift += 7;
                if bits & 0x80 != 0 {
                    return;
                }
                counted(*of, *value)
            }
            Field::Name { left, matched } => {
                *matched = matched.filter(|at| NAME.get(*at) == Some(&bits)).map(|at| at + 1);
                *left -= 1;
                if *left > 0 {
                    return;
                }
                Field::ValueLength { authority: *matched == Some(NAME.len()) }
            }
            Field::Value { left, mend } => {
                if *mend && bits == b'%' {
                    *byte = b'-';
                }
                *left -= 1;
                if *left > 0 {
                    return;
                }
                Field::Start
            }
        };
    }
}

/// A number whose first byte has `prefix` bits of it.
fn number(of: Number, bits: u8, prefix: u32) -> Field {
    let mask = (1usize << prefix) - 1;
    let value = usize::from(bits) & mask;
    if value == mask { Field::Number { of, value, shift: 0 } } else { counted(of, value) }
}

/// What follows a number.
fn counted(of: Number, value: usize) -> Field {
    match of {
        Number::Other => Field::Start,
        Number::NameIndex if value == 0 => Field::NameLength,
        Number::NameIndex => Field::ValueLength { authority: value == NAME_INDEX },
        Number::NameLength { .. } if value == 0 => Field::ValueLength { authority: false },
        Number::NameLength { plain } => Field::Name { left: value, matched: plain.then_some(0) },
        Number::ValueLength { .. } if value == 0 => Field::Start,
        Number::ValueLength { mend } => Field::Value { left: value, mend },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, l2, l1, l0] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[l2, l1, l0, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn literal(first: u8, name: &str, value: &str) -> Vec<u8> {
        let mut field = vec![first];
        for text in [name, value] {
            if text != name || first & 0x3f == 0 {
                match u8::try_from(text.len()) {
                    Ok(short) if short < 127 => field.push(short),
                    _ => field.extend([127, u8::try_from(text.len() - 127).unwrap()]),
                }
                field.extend(text.as_bytes());
            }
        }
        field
    }

    /// What becomes of a connection's bytes, however they arrive.
    fn mended(frames: &[Vec<u8>]) -> Vec<u8> {
        let all = [vec![b'x'; PREFACE_BYTES], frames.concat()].concat();
        let mut results = [1, 2, 3, 10, all.len()].map(|size| {
            let (mut bytes, mut authority) = (all.clone(), Authority::default());
            bytes.chunks_mut(size).for_each(|chunk| authority.mend(chunk));
            bytes
        });
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
        std::mem::take(&mut results[0]).split_off(PREFACE_BYTES)
    }

    #[test]
    fn percents_in_the_authority_become_dashes_and_nothing_else_changes() {
        let settings = frame(4, 0, b"%%%%%%");
        let other = literal(0x40, "x-note", "100%");
        let path = literal(0x44, "", "/a%20b");
        let before = [
            settings.clone(),
            frame(
                HEADERS,
                4,
                &[literal(0x40, ":authority", "tmp%2Fd.sock"), other.clone(), path.clone()].concat(),
            ),
            frame(0, 0, b"data % data"),
            frame(HEADERS, 4, &[vec![0xbe, 0x3f, 0x01], literal(0x41, "", "a%2Fb"), other.clone()].concat()),
        ];
        let after = [
            settings,
            frame(HEADERS, 4, &[literal(0x40, ":authority", "tmp-2Fd.sock"), other.clone(), path].concat()),
            frame(0, 0, b"data % data"),
            frame(HEADERS, 4, &[vec![0xbe, 0x3f, 0x01], literal(0x41, "", "a-2Fb"), other].concat()),
        ];
        assert_eq!(mended(&before), after.concat());
    }

    #[test]
    fn padding_priority_continuation_and_long_values_are_followed() {
        let long = format!("{}%2F", "p".repeat(200));
        let block = literal(0x00, ":authority", &long);
        let (first, second) = block.split_at(20);
        let padded = [&[3, 0, 0, 0, 0, 9], first, b"%%%"].concat();
        let frames = [frame(HEADERS, PADDED | PRIORITY, &padded), frame(CONTINUATION, 4, second)];
        let mended = mended(&frames);
        let text = String::from_utf8_lossy(&mended);
        assert!(text.contains("p-2F") && !text.contains("p%2F"), "{text}");
        assert!(text.contains("%%%"), "padding is left alone: {text}");
    }

    #[test]
    fn any_bytes_pass() {
        use rand::{Rng, SeedableRng, rngs::SmallRng};
        let mut random = SmallRng::seed_from_u64(7);
        for _ in 0..2000 {
            let mut bytes: Vec<u8> = (0..random.random_range(0..300)).map(|_| random.random()).collect();
            // Mostly small frames of the kinds that are looked at, so that the fields are reached.
            for start in (PREFACE_BYTES..bytes.len().saturating_sub(FRAME_HEADER_BYTES)).step_by(40) {
                bytes[start..start + 4].copy_from_slice(&[
                    0,
                    0,
                    31,
                    if start % 3 == 0 { HEADERS } else { CONTINUATION },
                ]);
            }
            let length = bytes.len();
            let mut authority = Authority::default();
            authority.mend(&mut bytes);
            assert_eq!(bytes.len(), length);
        }
    }
}
