//! Unix socket streams whose `:authority` the h2 crate accepts.
//!
//! gRPC clients built on the C core (C++, Python, Ruby, PHP) send a unix socket's path, percent-encoded, as HTTP/2's
//! `:authority`. h2 rejects a `%` there and resets the stream. No front reads the authority of a unix socket, so each
//! `%` in it becomes `-` as the bytes are read. The length stays the same, and with it every length in HTTP/2.
//!
//! The rewriter follows HTTP/2 frames (RFC 9113 §4.1) to header blocks, and in them the fields (RFC 7541 §6), a byte at
//! a time and without a buffer. Huffman-coded values pass unchanged, since these clients send plain ones. Anything
//! malformed passes unchanged too, for h2 to reject.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
const NAME: &[u8] = b":authority";
/// Index of the name in HPACK's static table.
const NAME_INDEX: usize = 1;

/// A unix socket stream that rewrites `:authority` on reads.
#[derive(Debug)]
pub(crate) struct UnixSocketStream {
    stream: UnixStream,
    rewriter: AuthorityRewriter,
}

impl From<UnixStream> for UnixSocketStream {
    fn from(stream: UnixStream) -> Self {
        Self { stream, rewriter: AuthorityRewriter::default() }
    }
}

impl AsyncRead for UnixSocketStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if let Some(read) = buf.filled_mut().get_mut(before..) {
            self.rewriter.rewrite(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UnixSocketStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Position of the next byte in the stream of frames.
#[derive(Debug)]
enum Frame {
    /// The connection preface, which HTTP/1.1 does not have.
    Preface {
        have: usize,
    },
    Header {
        bytes: [u8; FRAME_HEADER_BYTES],
        have: usize,
    },
    /// The padding length of a HEADERS frame. `prefix` and `block` bytes follow it.
    PadLength {
        prefix: usize,
        block: usize,
    },
    /// The priority fields before a header block.
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

/// Position of the next byte in a header block.
#[derive(Debug)]
enum Field {
    Start,
    /// A continuation byte of an integer.
    Integer {
        meaning: Integer,
        value: usize,
        shift: u32,
    },
    /// The first byte of a name's length.
    NameLength,
    Name {
        left: usize,
        matched: Option<usize>,
    },
    /// The first byte of a value's length.
    ValueLength {
        authority: bool,
    },
    Value {
        left: usize,
        rewrite: bool,
    },
}

/// Meaning of an HPACK integer.
#[derive(Clone, Copy, Debug)]
enum Integer {
    /// An indexed field, or the size of the dynamic table.
    Other,
    NameIndex,
    NameLength {
        plain: bool,
    },
    ValueLength {
        rewrite: bool,
    },
}

/// Rewrites the authority in the bytes of one connection.
#[derive(Debug)]
struct AuthorityRewriter {
    frame: Frame,
    field: Field,
    /// The rest of the connection passes unchanged: HTTP/1.1, or malformed HTTP/2.
    disabled: bool,
}

impl Default for AuthorityRewriter {
    fn default() -> Self {
        Self { frame: Frame::Preface { have: 0 }, field: Field::Start, disabled: false }
    }
}

fn next_frame() -> Frame {
    Frame::Header { bytes: [0; FRAME_HEADER_BYTES], have: 0 }
}

impl AuthorityRewriter {
    /// Rewrites bytes in the order in which they arrive.
    fn rewrite(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() && !self.disabled {
            let taken = match &mut self.frame {
                Frame::Preface { have } => {
                    self.disabled = PREFACE.get(*have) != bytes.first();
                    *have += 1;
                    1
                }
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
                        None => self.disabled = true,
                    }
                    1
                }
                Frame::Block { left, .. } => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    for byte in &mut bytes[..taken] {
                        self.step_field(byte);
                    }
                    taken
                }
            };
            self.advance();
            bytes = &mut bytes[taken..];
        }
    }

    /// Moves past completed parts of a frame. Parts may be empty.
    fn advance(&mut self) {
        loop {
            self.frame = match &self.frame {
                Frame::Preface { have } if *have == PREFACE.len() => next_frame(),
                Frame::Header { bytes, have } if *have == FRAME_HEADER_BYTES => self.begin_payload(*bytes),
                Frame::Prefix { left: 0, block, padding } => Frame::Block { left: *block, padding: *padding },
                Frame::Block { left: 0, padding } => Frame::Skip { left: *padding },
                Frame::Skip { left: 0 } => next_frame(),
                _ => return,
            };
        }
    }

    /// Returns the position after a frame header.
    fn begin_payload(&mut self, header: [u8; FRAME_HEADER_BYTES]) -> Frame {
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
                        self.disabled = true;
                        Frame::Skip { left: length }
                    }
                }
            }
            _ => Frame::Skip { left: length },
        }
    }

    /// Advances by one byte of a header block.
    fn step_field(&mut self, byte: &mut u8) {
        let bits = *byte;
        self.field = match &mut self.field {
            Field::Start if bits & 0x80 != 0 => integer(Integer::Other, bits, 7),
            Field::Start if bits & 0x40 != 0 => integer(Integer::NameIndex, bits, 6),
            Field::Start if bits & 0x20 != 0 => integer(Integer::Other, bits, 5),
            Field::Start => integer(Integer::NameIndex, bits, 4),
            Field::NameLength => integer(Integer::NameLength { plain: bits & 0x80 == 0 }, bits, 7),
            Field::ValueLength { authority } => {
                integer(Integer::ValueLength { rewrite: *authority && bits & 0x80 == 0 }, bits, 7)
            }
            Field::Integer { meaning, value, shift } => {
                // Larger than any length that fits a frame.
                if *shift > 21 {
                    self.disabled = true;
                    return;
                }
                *value += usize::from(bits & 0x7f) << *shift;
                *shift += 7;
                if bits & 0x80 != 0 {
                    return;
                }
                after_integer(*meaning, *value)
            }
            Field::Name { left, matched } => {
                *matched = matched.filter(|at| NAME.get(*at) == Some(&bits)).map(|at| at + 1);
                *left -= 1;
                if *left > 0 {
                    return;
                }
                Field::ValueLength { authority: *matched == Some(NAME.len()) }
            }
            Field::Value { left, rewrite } => {
                if *rewrite && bits == b'%' {
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

/// Begins an integer whose first byte holds `prefix` bits of it.
fn integer(meaning: Integer, bits: u8, prefix: u32) -> Field {
    let mask = (1usize << prefix) - 1;
    let value = usize::from(bits) & mask;
    if value == mask { Field::Integer { meaning, value, shift: 0 } } else { after_integer(meaning, value) }
}

/// Returns the position after an integer.
fn after_integer(meaning: Integer, value: usize) -> Field {
    match meaning {
        Integer::Other => Field::Start,
        Integer::NameIndex if value == 0 => Field::NameLength,
        Integer::NameIndex => Field::ValueLength { authority: value == NAME_INDEX },
        Integer::NameLength { .. } if value == 0 => Field::ValueLength { authority: false },
        Integer::NameLength { plain } => Field::Name { left: value, matched: plain.then_some(0) },
        Integer::ValueLength { .. } if value == 0 => Field::Start,
        Integer::ValueLength { rewrite } => Field::Value { left: value, rewrite },
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

    /// Rewrites a connection's bytes in chunks of several sizes, which must all give the same.
    fn rewritten(frames: &[Vec<u8>]) -> Vec<u8> {
        let all = [PREFACE, &frames.concat()].concat();
        let mut results = [1, 2, 3, 10, all.len()].map(|size| {
            let (mut bytes, mut rewriter) = (all.clone(), AuthorityRewriter::default());
            bytes.chunks_mut(size).for_each(|chunk| rewriter.rewrite(chunk));
            bytes
        });
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
        std::mem::take(&mut results[0]).split_off(PREFACE.len())
    }

    #[test]
    fn percent_signs_in_the_authority_become_dashes_and_nothing_else_changes() {
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
        assert_eq!(rewritten(&before), after.concat());
    }

    #[test]
    fn padding_priority_continuation_and_long_values_are_parsed() {
        let long = format!("{}%2F", "p".repeat(200));
        let block = literal(0x00, ":authority", &long);
        let (first, second) = block.split_at(20);
        let padded = [&[3, 0, 0, 0, 0, 9], first, b"%%%"].concat();
        let frames = [frame(HEADERS, PADDED | PRIORITY, &padded), frame(CONTINUATION, 4, second)];
        let rewritten = rewritten(&frames);
        let text = String::from_utf8_lossy(&rewritten);
        assert!(text.contains("p-2F") && !text.contains("p%2F"), "{text}");
        assert!(text.contains("%%%"), "padding passes unchanged: {text}");
    }

    #[test]
    fn random_bytes_do_not_panic() {
        use rand::{Rng, SeedableRng, rngs::SmallRng};
        let mut random = SmallRng::seed_from_u64(7);
        for _ in 0..2000 {
            let mut bytes: Vec<u8> = (0..random.random_range(0..300)).map(|_| random.random()).collect();
            // Mostly small header frames, so that the fields are reached.
            for start in (PREFACE.len()..bytes.len().saturating_sub(FRAME_HEADER_BYTES)).step_by(40) {
                bytes[start..start + 4].copy_from_slice(&[
                    0,
                    0,
                    31,
                    if start % 3 == 0 { HEADERS } else { CONTINUATION },
                ]);
            }
            let length = bytes.len();
            if let Some(preface) = bytes.get_mut(..PREFACE.len()) {
                preface.copy_from_slice(PREFACE);
            }
            AuthorityRewriter::default().rewrite(&mut bytes);
            assert_eq!(bytes.len(), length);
        }
    }

    #[test]
    fn http1_passes_unchanged() {
        let request = [
            &b"GET /a%20b HTTP/1.1\r\nhost: a%2Fb\r\n\r\n"[..],
            &frame(HEADERS, 4, &literal(0x41, "", "a%2Fb")),
        ];
        let mut bytes = request.concat();
        AuthorityRewriter::default().rewrite(&mut bytes);
        assert_eq!(bytes, request.concat());
    }
}
