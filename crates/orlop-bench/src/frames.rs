//! HTTP/2's frames and gRPC's messages, as far as a client that makes one kind of call needs them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// What either side may send of data before it hears more.
pub(crate) const WINDOW: i64 = 65_535;
/// A byte for compression and four for the length come before each message.
pub(crate) const MESSAGE_PREFIX: usize = 5;

const FRAME_PREFIX: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;
const WINDOW_MAX: u32 = i32::MAX as u32;

/// A frame off the wire.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Bytes,
}

impl Frame {
    /// The first frame of what has come, if all of it has.
    pub(crate) fn take(input: &mut BytesMut) -> Option<Self> {
        let prefix: [u8; FRAME_PREFIX] = input.get(..FRAME_PREFIX)?.try_into().ok()?;
        let [a, b, c, kind, flags, stream @ ..] = prefix;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if input.len() < FRAME_PREFIX + length {
            return None;
        }
        input.advance(FRAME_PREFIX);
        let stream = u32::from_be_bytes(stream) & WINDOW_MAX;
        Some(Self { kind, flags, stream, payload: input.split_to(length).freeze() })
    }
}

/// Appends a frame. What a caller sends is smaller than the smallest bound that a server may set.
pub(crate) fn put_frame(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    output.put_uint(payload.len() as u64, 3);
    output.put_slice(&[kind, flags]);
    output.put_u32(stream);
    output.put_slice(payload);
}

/// What a client says first: nothing pushed, and room for every answer.
pub(crate) fn opening() -> Vec<u8> {
    let mut output = PREFACE.to_vec();
    let mut settings = Vec::new();
    for (name, value) in [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX)] {
        settings.put_u16(name);
        settings.put_u32(value);
    }
    put_frame(&mut output, SETTINGS, 0, 0, &settings);
    put_frame(&mut output, WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW as u32).to_be_bytes());
    output
}

/// The header fields of a connection's first call. Those that HTTP/2 has no number for are given one.
pub(crate) fn first_header_fields(path: &str, authority: &str) -> Vec<u8> {
    // POST and http, by their numbers; then path and authority with the numbers of their names.
    let mut fields = vec![0x83, 0x86, 0x44];
    put_text(&mut fields, path);
    fields.push(0x41);
    put_text(&mut fields, authority);
    fields.push(0x40);
    put_text(&mut fields, "te");
    put_text(&mut fields, "trailers");
    fields.push(0x40 | 31);
    put_text(&mut fields, "application/grpc");
    fields
}

/// The same fields by the numbers that the first call gave them, the newest first.
pub(crate) const HEADER_FIELDS: [u8; 6] = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];

/// Text shorter than 127 bytes, as it is.
fn put_text(fields: &mut Vec<u8>, text: &str) {
    fields.push(text.len() as u8);
    fields.put_slice(text.as_bytes());
}

/// The window that a server's settings give each stream, if they say so.
pub(crate) fn initial_window(settings: &[u8]) -> Option<i64> {
    settings.chunks_exact(6).find_map(|mut setting| {
        (setting.get_u16() == INITIAL_WINDOW_SIZE).then(|| i64::from(setting.get_u32()))
    })
}

/// The message in what has come of an answer, if all of it has.
pub(crate) fn message(answer: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(answer.get(1..MESSAGE_PREFIX)?.try_into().ok()?);
    answer.get(MESSAGE_PREFIX..MESSAGE_PREFIX + length as usize)
}
