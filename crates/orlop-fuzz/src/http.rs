//! A small HTTP/1.1 client that sends requests exactly as they were mutated.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Longer than any request may take.
const TIMEOUT: Duration = Duration::from_secs(70);
/// Bytes of an answer that are kept.
const KEPT_BYTES: usize = 4 << 20;

/// A request before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) body: Vec<u8>,
}

/// The beginning of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    /// The server closes the connection.
    pub(crate) closed: bool,
}

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Request {
    /// Returns path and query as they are sent.
    pub(crate) fn target(&self) -> String {
        let pairs: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
        if pairs.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, pairs.join("&")) }
    }
}

/// Escapes all but letters, digits and a few marks.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

impl Connection {
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) fn send(&mut self, request: &Request, token: &str) -> io::Result<Answer> {
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: fuzz\r\nAuthorization: Bearer {token}\r\nContent-Type: {}\r\nAccept: {}\r\n\
             Content-Length: {}\r\n\r\n",
            request.method,
            request.target(),
            request.content_type,
            request.accept,
            request.body.len()
        );
        let message = [head.as_bytes(), &request.body].concat();
        // A server may refuse before it has read everything: its answer counts then.
        let written = self.stream.get_mut().write_all(&message);
        match self.read_answer(request.method == "HEAD") {
            Ok(answer) => Ok(answer),
            Err(error) => Err(written.err().unwrap_or(error)),
        }
    }

    fn read_answer(&mut self, without_body: bool) -> io::Result<Answer> {
        let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let status = self.read_line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let code: u16 = code.ok_or_else(|| bad(&format!("no status line: {status:?}")))?;
        let (mut length, mut chunked, mut closed, mut content_type) = (0, false, false, String::new());
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().map_err(|_| bad("bad content-length"))?,
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" => closed = value.eq_ignore_ascii_case("close"),
                "content-type" => value.clone_into(&mut content_type),
                _ => {}
            }
        }
        let mut body = Vec::new();
        if !without_body && !matches!(code, 204 | 304) {
            if chunked {
                self.read_chunks(&mut body)?;
            } else {
                self.read_bytes(length, &mut body)?;
            }
        }
        Ok(Answer { code, content_type, body, closed })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    fn read_chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.read_line()?;
            let length = usize::from_str_radix(line.trim(), 16)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("bad chunk {line:?}")))?;
            self.read_bytes(length, body)?;
            self.read_line()?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Reads all bytes and keeps the first of them.
    fn read_bytes(&mut self, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
        let kept = length.min(KEPT_BYTES.saturating_sub(body.len()));
        let start = body.len();
        body.resize(start + kept, 0);
        self.stream.read_exact(&mut body[start..])?;
        let rest = io::copy(&mut (&mut self.stream).take((length - kept) as u64), &mut io::sink())?;
        if rest == (length - kept) as u64 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
