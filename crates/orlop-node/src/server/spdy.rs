//! SPDY/3.1 streams on one connection, as kubectl's port-forward and older clients speak them.
//!
//! Frames, streams and headers only: Kubernetes' clients use no flow control, no priorities and no settings. Headers are
//! compressed with a dictionary towards this side, and sent back in stored blocks, which every inflater reads.

use std::{collections::HashMap, io, sync::Arc};

use bytes::{BufMut, Bytes};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, WriteHalf},
    sync::{Mutex, mpsc},
};

use super::spdy_headers::{Headers, Inflater, encode};

/// Largest frame.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Streams of a connection.
const STREAMS_MAX: usize = 1000;
/// Chunks of a stream that wait for its reader.
const QUEUE: usize = 16;
const VERSION: u16 = 3;
const FLAG_FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const CANCEL: u32 = 5;

/// A stream that the client has opened.
#[derive(Debug)]
pub(super) struct Stream<S> {
    pub(super) headers: Headers,
    /// Data of the client, until it ends the stream.
    pub(super) data: mpsc::Receiver<Bytes>,
    pub(super) writer: StreamWriter<S>,
}

/// This side of a stream.
#[derive(Debug)]
pub(super) struct StreamWriter<S> {
    id: u32,
    connection: Arc<Mutex<WriteHalf<S>>>,
}

impl<S: AsyncRead + AsyncWrite + Send> StreamWriter<S> {
    /// Sends data.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(0, bytes).await
    }

    /// Ends this side of the stream.
    pub(super) async fn finish(&self) -> io::Result<()> {
        self.send(FLAG_FIN, b"").await
    }

    /// Ends both sides of the stream.
    pub(super) async fn reset(&self) -> io::Result<()> {
        let mut body = Vec::new();
        body.put_u32(self.id);
        body.put_u32(CANCEL);
        write_control(&self.connection, RST_STREAM, 0, &body).await
    }

    async fn send(&self, flags: u8, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(8 + bytes.len());
        frame.put_u32(self.id);
        frame.put_u32(u32::from(flags) << 24 | length);
        frame.put_slice(bytes);
        self.connection.lock().await.write_all(&frame).await
    }
}

async fn write_control<S: AsyncRead + AsyncWrite + Send>(
    connection: &Mutex<WriteHalf<S>>,
    kind: u16,
    flags: u8,
    body: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(8 + body.len());
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    frame.put_u32(u32::from(flags) << 24 | length);
    frame.put_slice(body);
    connection.lock().await.write_all(&frame).await
}

/// Serves a connection: passes every new stream on, until the client goes.
pub(super) async fn serve<S>(stream: S, streams: mpsc::Sender<Stream<S>>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut reader, writer) = tokio::io::split(stream);
    let connection = Arc::new(Mutex::new(writer));
    let mut inflater = Inflater::default();
    let mut deflated_any = false;
    let mut open: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    loop {
        let mut header = [0; 8];
        match reader.read_exact(&mut header).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let [a, b, c, d, flags, length @ ..] = header;
        let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other("frame too long"));
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await?;
        if a & 0x80 == 0 {
            let id = u32::from_be_bytes([a, b, c, d]);
            if let Some(sender) = open.get(&id) {
                // A reader that is gone loses its data, and nobody waits for it.
                if !body.is_empty() && sender.send(body.into()).await.is_err() {
                    open.remove(&id);
                }
                if flags & FLAG_FIN != 0 {
                    open.remove(&id);
                }
            }
            continue;
        }
        match u16::from_be_bytes([c, d]) {
            SYN_STREAM if length >= 10 => {
                let id = u32::from_be_bytes([body[0], body[1], body[2], body[3]]) & 0x7fff_ffff;
                let headers = inflater.headers(&body[10..])?;
                if open.len() >= STREAMS_MAX {
                    return Err(io::Error::other("too many streams"));
                }
                let (sender, data) = mpsc::channel(QUEUE);
                if flags & FLAG_FIN == 0 {
                    open.insert(id, sender);
                }
                let mut reply = Vec::new();
                reply.put_u32(id);
                reply.put_slice(&encode(!std::mem::replace(&mut deflated_any, true)));
                write_control(&connection, SYN_REPLY, 0, &reply).await?;
                let writer = StreamWriter { id, connection: connection.clone() };
                if streams.send(Stream { headers, data, writer }).await.is_err() {
                    return Ok(());
                }
            }
            RST_STREAM if length >= 4 => {
                open.remove(&(u32::from_be_bytes([body[0], body[1], body[2], body[3]]) & 0x7fff_ffff));
            }
            PING => write_control(&connection, PING, 0, &body).await?,
            GO_AWAY => return Ok(()),
            _ => {}
        }
    }
}
