//! Long answers, taken in with as few instructions as TLS and HTTP/2 allow.
//!
//! The client shares the machine with the server that it loads: what a library does with each piece (tasks,
//! queues, a copy here and there, memory that is new each time) would be missing from the server's rate.

use anyhow::{Context, bail, ensure};
use orlop_testbed::http2::*;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::client::{Stream, Target};

/// The plain form.
pub(crate) const JSON: &str = "application/json";

/// Treatment of a downloaded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    /// Only how long it was.
    Nothing,
}

/// One connection, on which one answer comes after another.
pub(crate) struct Download {
    stream: Stream,
    authority: String,
    next_stream: u32,
    /// The body that came last, in memory that the next one takes over.
    pub(crate) body: Vec<u8>,
}

impl Download {
    pub(crate) async fn connect(target: &Target) -> anyhow::Result<Self> {
        let mut stream = target.open().await?;
        stream.write_all(&opening()).await?;
        Ok(Self { stream, authority: target.authority.clone(), next_stream: 1, body: Vec::new() })
    }

    /// GETs a path in a form that is accepted; the length of the body.
    pub(crate) async fn get(&mut self, path: &str, accept: &str, keep: Keep) -> anyhow::Result<usize> {
        let fields = get_fields("https", path, &self.authority, &[("accept", accept)]);
        let asked = self.next_stream;
        self.next_stream += 2;
        self.send(HEADERS, END_HEADERS | END_STREAM, asked, &fields).await?;
        self.body.clear();
        let mut length = 0;
        loop {
            let mut prefix = [0; FRAME_PREFIX];
            self.stream.read_exact(&mut prefix).await.context("the server hung up")?;
            let [a, b, c, kind, flags, ..] = prefix;
            let size = u32::from_be_bytes([0, a, b, c]) as usize;
            if kind == DATA {
                ensure!(flags & PADDED == 0, "an answer is padded");
                length += size;
                self.take_data(size, keep).await?;
            } else {
                self.take_other(kind, flags, size).await.with_context(|| path.to_owned())?;
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                break;
            }
        }
        // The stream's window was all that there can be; the connection's is given back.
        if let Some(more) = u32::try_from(length).ok().filter(|more| *more > 0) {
            self.send(WINDOW_UPDATE, 0, 0, &more.to_be_bytes()).await?;
        }
        Ok(length)
    }

    async fn take_data(&mut self, mut size: usize, keep: Keep) -> anyhow::Result<()> {
        while size > 0 {
            let came = self.stream.fill_buf().await?;
            ensure!(!came.is_empty(), "the server hung up");
            let part = came.get(..size).unwrap_or(came);
            if keep == Keep::All {
                self.body.extend_from_slice(part);
            }
            let taken = part.len();
            self.stream.consume(taken);
            size -= taken;
        }
        Ok(())
    }

    async fn take_other(&mut self, kind: u8, flags: u8, size: usize) -> anyhow::Result<()> {
        let mut payload = vec![0; size];
        self.stream.read_exact(&mut payload).await?;
        match kind {
            HEADERS => ensure!(payload.first() == Some(&OK), "refused"),
            SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await?,
            PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload).await?,
            RST_STREAM | GO_AWAY => bail!("broken off"),
            _ => {}
        }
        Ok(())
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> anyhow::Result<()> {
        let mut output = Vec::new();
        put_frame(&mut output, kind, flags, stream, payload);
        self.stream.write_all(&output).await?;
        Ok(self.stream.flush().await?)
    }
}
