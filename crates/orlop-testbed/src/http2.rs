//! HTTP/2's frames and gRPC's messages, for clients that a library would not let be: ones that cost next to
//! nothing, and ones that do not behave.

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GO_AWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// What the header fields of an answer with code 200 begin with.
pub const OK: u8 = 0x88;
/// The reason of a stream that a server did not take.
pub const REFUSED_STREAM: u32 = 7;
/// What either side may send of data before it hears more.
pub const WINDOW: u32 = 65_535;
/// A byte for compression and four for the length come before each message.
pub const MESSAGE_PREFIX: usize = 5;

/// Length, kind, flags and stream come before each frame.
pub const FRAME_PREFIX: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;
const WINDOW_MAX: u32 = i32::MAX as u32;

/// A frame off the wire.
#[derive(Debug)]
pub struct Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of what has come, if all of it has.
    pub fn first(input: &'a [u8]) -> Option<Self> {
        let ([a, b, c, kind, flags, stream @ ..], rest) = input.split_first_chunk::<FRAME_PREFIX>()?;
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes(*stream) & WINDOW_MAX;
        Some(Self { kind: *kind, flags: *flags, stream, payload: rest.get(..length)? })
    }

    /// How many bytes it is on the wire.
    pub fn size(&self) -> usize {
        FRAME_PREFIX + self.payload.len()
    }

    /// The number that the payload begins with.
    pub fn number(&self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.payload.first_chunk()?))
    }
}

/// Appends a frame. What is sent is smaller than the smallest bound that a server may set.
pub fn put_frame(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    output.extend_from_slice(&length);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(payload);
}

/// What a client says first: nothing pushed, and room for every answer.
pub fn opening() -> Vec<u8> {
    let mut output = PREFACE.to_vec();
    let mut settings = Vec::new();
    for (name, value) in [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX)] {
        settings.extend_from_slice(&name.to_be_bytes());
        settings.extend_from_slice(&value.to_be_bytes());
    }
    put_frame(&mut output, SETTINGS, 0, 0, &settings);
    put_frame(&mut output, WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW).to_be_bytes());
    output
}

/// The header fields of a connection's first call. Those that HTTP/2 has no number for are given one.
pub fn first_header_fields(path: &str, authority: &str) -> Vec<u8> {
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
pub const HEADER_FIELDS: [u8; 6] = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];

/// The header fields of a GET, none of which is given a number.
pub fn get_fields(scheme: &str, path: &str, authority: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let own = [(":method", "GET"), (":scheme", scheme), (":path", path), (":authority", authority)];
    let mut fields = Vec::new();
    for (name, value) in own.iter().chain(others) {
        put_field(&mut fields, name, value);
    }
    fields
}

/// Appends a header field without giving it a number.
pub fn put_field(fields: &mut Vec<u8>, name: &str, value: &str) {
    fields.push(0);
    put_text(fields, name);
    put_text(fields, value);
}

/// Text shorter than 127 bytes, as it is.
fn put_text(fields: &mut Vec<u8>, text: &str) {
    fields.push(text.len() as u8);
    fields.extend_from_slice(text.as_bytes());
}

/// The window that a server's settings give each stream, if they say so.
pub fn initial_window(settings: &[u8]) -> Option<u32> {
    let (settings, _) = settings.as_chunks::<6>();
    settings.iter().find_map(|[name @ .., a, b, c, d]| {
        (u16::from_be_bytes(*name) == INITIAL_WINDOW_SIZE).then(|| u32::from_be_bytes([*a, *b, *c, *d]))
    })
}

/// The message in what has come of an answer, if all of it has.
pub fn message(answer: &[u8]) -> Option<&[u8]> {
    let ([_, length @ ..], rest) = answer.split_first_chunk::<MESSAGE_PREFIX>()?;
    rest.get(..u32::from_be_bytes(*length) as usize)
}

/// A client on a blocking socket that does only what it is told to: it answers no ping.
#[derive(Debug)]
pub struct Peer<S> {
    socket: S,
    input: Vec<u8>,
}

impl<S: std::io::Read + std::io::Write> Peer<S> {
    /// Shakes hands.
    pub fn new(mut socket: S) -> std::io::Result<Self> {
        let mut hello = opening();
        put_frame(&mut hello, SETTINGS, ACK, 0, &[]);
        socket.write_all(&hello)?;
        Ok(Self { socket, input: Vec::new() })
    }

    /// Sends a frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let mut output = Vec::new();
        put_frame(&mut output, kind, flags, stream, payload);
        self.socket.write_all(&output)
    }

    /// Opens streams of calls to a path, whose messages never come.
    pub fn open(&mut self, path: &str, streams: u32) -> std::io::Result<()> {
        let mut output = Vec::new();
        for n in 0..streams {
            let fields = if n == 0 { first_header_fields(path, "test") } else { HEADER_FIELDS.to_vec() };
            put_frame(&mut output, HEADERS, END_HEADERS, 2 * n + 1, &fields);
        }
        self.socket.write_all(&output)
    }

    /// Shows frames to `wanted` until it says that that was the one. `false` if the server hung up before.
    pub fn until(&mut self, mut wanted: impl FnMut(&Frame<'_>) -> bool) -> std::io::Result<bool> {
        loop {
            while let Some(frame) = Frame::first(&self.input) {
                let (found, size) = (wanted(&frame), frame.size());
                self.input.drain(..size);
                if found {
                    return Ok(true);
                }
            }
            let mut more = [0; 4096];
            match self.socket.read(&mut more) {
                Ok(0) => return Ok(false),
                Ok(read) => self.input.extend_from_slice(&more[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
