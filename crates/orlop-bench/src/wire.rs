//! gRPC calls in as few instructions as HTTP/2 allows.
//!
//! Clients share the machine with the server that they load, so that what a call costs them is missing from
//! the server's rate. Here one task holds a connection and all the clients on it: it reads what has come,
//! writes every call that is due in one piece, and hands nothing to another task. What it sends is what a
//! client library sends: header fields by their index after the first call, windows kept, pings answered.
//!
//! Header fields of answers are not decoded: an answer counts if it holds a whole message that the caller
//! finds good. A refused call has none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use orlop_testbed::http2::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::load::Measured;

/// Appends the n-th message of a client.
pub(crate) type Request = Box<dyn Fn(usize, usize, &mut Vec<u8>) + Send + Sync>;

/// Call that every client repeats.
pub(crate) struct Call {
    /// `/package.Service/Method`.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) request: Request,
    /// Returns true if a message is the expected answer.
    pub(crate) good: fn(&[u8]) -> bool,
}

/// Relation of messages to streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A stream for each call.
    Unary,
    /// One stream for each client, on which calls and answers take turns.
    Stream,
}

/// One caller, which waits for each answer before it calls again.
struct Client {
    number: usize,
    state: State,
    calls: usize,
    stream: u32,
    /// Flow-control window left on the stream.
    window: i64,
    begun: Instant,
    answer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Has something to send, as soon as the windows allow it.
    Due,
    Waiting,
    Done,
}

/// A connection and the clients on it.
struct Connection {
    call: Arc<Call>,
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    message: Vec<u8>,
    clients: Vec<Client>,
    next_stream: u32,
    /// Flow-control windows left on the connection, and of a new stream.
    window: i64,
    stream_window: i64,
    /// Data that came since the server was told that it was read.
    unread: u32,
    authority: String,
    latencies: Vec<Duration>,
    errors: usize,
}

/// Runs `clients` callers on `connections` connections for a time.
pub(crate) async fn run(
    authority: &str,
    connections: usize,
    clients: usize,
    time: Duration,
    call: Call,
) -> anyhow::Result<Measured> {
    let call = Arc::new(call);
    let mut opened = Vec::new();
    for first in 0..connections {
        let numbers = (first..clients).step_by(connections);
        opened.push(Connection::open(authority, call.clone(), numbers).await?);
    }
    let started = Instant::now();
    let tasks: Vec<_> =
        opened.into_iter().map(|connection| tokio::spawn(connection.run(started + time))).collect();
    let (mut latencies, mut errors) = (Vec::new(), 0);
    for task in tasks {
        let (more, failed) = task.await??;
        latencies.extend(more);
        errors += failed;
    }
    Ok(Measured::new(latencies, errors, started.elapsed()))
}

impl Connection {
    async fn open(
        authority: &str,
        call: Arc<Call>,
        numbers: impl Iterator<Item = usize>,
    ) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(authority).await.with_context(|| authority.to_owned())?;
        socket.set_nodelay(true)?;
        let clients = numbers.map(|number| Client {
            number,
            state: State::Due,
            calls: 0,
            stream: 0,
            window: 0,
            begun: Instant::now(),
            answer: Vec::new(),
        });
        Ok(Self {
            call,
            socket,
            input: Vec::with_capacity(64 << 10),
            output: opening(),
            message: Vec::new(),
            clients: clients.collect(),
            next_stream: 1,
            window: WINDOW.into(),
            stream_window: WINDOW.into(),
            unread: 0,
            authority: authority.to_owned(),
            latencies: Vec::new(),
            errors: 0,
        })
    }

    async fn run(mut self, deadline: Instant) -> anyhow::Result<(Vec<Duration>, usize)> {
        let begun = Instant::now();
        self.clients.iter_mut().for_each(|client| client.begun = begun);
        loop {
            for at in 0..self.clients.len() {
                self.send(at)?;
            }
            self.socket.write_all(&self.output).await?;
            self.output.clear();
            if self.clients.iter().all(|client| client.state == State::Done) {
                return Ok((self.latencies, self.errors));
            }
            ensure!(self.socket.read_buf(&mut self.input).await? > 0, "the server hung up");
            let now = Instant::now();
            let (mut input, mut at) = (std::mem::take(&mut self.input), 0);
            while let Some(frame) = input.get(at..).and_then(Frame::first) {
                self.take(&frame, now, deadline)?;
                at += frame.size();
            }
            input.drain(..at);
            self.input = input;
        }
    }

    /// Sends what a client has to send, if it has and the windows allow it.
    fn send(&mut self, at: usize) -> anyhow::Result<()> {
        let client = &mut self.clients[at];
        if client.state != State::Due {
            return Ok(());
        }
        self.message.clear();
        self.message.extend_from_slice(&[0; MESSAGE_PREFIX]);
        (self.call.request)(client.number, client.calls, &mut self.message);
        let length = self.message.len() - MESSAGE_PREFIX;
        self.message[1..MESSAGE_PREFIX].copy_from_slice(&u32::try_from(length)?.to_be_bytes());
        let opens = self.call.kind == Kind::Unary || client.stream == 0;
        let window = if opens { self.stream_window } else { client.window };
        let size = self.message.len() as i64;
        if size > window.min(self.window) {
            return Ok(());
        }
        if opens {
            let fields = match self.next_stream {
                1 => first_header_fields(self.call.path, &self.authority),
                _ => HEADER_FIELDS.to_vec(),
            };
            put_frame(&mut self.output, HEADERS, END_HEADERS, self.next_stream, &fields);
            client.stream = self.next_stream;
            self.next_stream += 2;
        }
        let flags = if self.call.kind == Kind::Unary { END_STREAM } else { 0 };
        put_frame(&mut self.output, DATA, flags, client.stream, &self.message);
        client.window = window - size;
        self.window -= size;
        client.state = State::Waiting;
        Ok(())
    }

    fn take(&mut self, frame: &Frame<'_>, now: Instant, deadline: Instant) -> anyhow::Result<()> {
        let ends = frame.flags & END_STREAM != 0;
        match frame.kind {
            DATA => {
                ensure!(frame.flags & PADDED == 0, "an answer is padded");
                self.unread += u32::try_from(frame.payload.len())?;
                if self.unread > 1 << 20 {
                    put_frame(&mut self.output, WINDOW_UPDATE, 0, 0, &self.unread.to_be_bytes());
                    self.unread = 0;
                }
                let Some(at) = self.client_of(frame.stream) else { return Ok(()) };
                let answer = &mut self.clients[at].answer;
                answer.extend_from_slice(frame.payload);
                if self.call.kind == Kind::Stream && message(answer).is_some() {
                    self.answered(at, now, deadline);
                }
            }
            HEADERS if ends => {
                ensure!(self.call.kind == Kind::Unary, "the server ended a stream");
                let Some(at) = self.client_of(frame.stream) else { return Ok(()) };
                self.answered(at, now, deadline);
            }
            RST_STREAM => {
                ensure!(self.call.kind == Kind::Unary, "the server reset a stream");
                let Some(at) = self.client_of(frame.stream) else { return Ok(()) };
                self.answered(at, now, deadline);
            }
            SETTINGS if frame.flags & ACK == 0 => {
                if let Some(window) = initial_window(frame.payload).map(i64::from) {
                    let more = window - self.stream_window;
                    self.stream_window = window;
                    self.clients.iter_mut().for_each(|client| client.window += more);
                }
                put_frame(&mut self.output, SETTINGS, ACK, 0, &[]);
            }
            PING if frame.flags & ACK == 0 => {
                put_frame(&mut self.output, PING, ACK, 0, frame.payload);
            }
            WINDOW_UPDATE => {
                let more = frame.number().map_or(0, i64::from);
                match self.client_of(frame.stream) {
                    Some(at) => self.clients[at].window += more,
                    None if frame.stream == 0 => self.window += more,
                    None => {}
                }
            }
            GO_AWAY => bail!("the server closes the connection"),
            _ => {}
        }
        Ok(())
    }

    fn client_of(&self, stream: u32) -> Option<usize> {
        self.clients.iter().position(|client| client.stream == stream && stream != 0)
    }

    /// An answer is complete: it counts, and the client goes on unless its time is up.
    fn answered(&mut self, at: usize, now: Instant, deadline: Instant) {
        let client = &mut self.clients[at];
        if message(&client.answer).is_some_and(self.call.good) {
            self.latencies.push(now - client.begun);
        } else {
            self.errors += 1;
        }
        client.answer.clear();
        client.calls += 1;
        client.begun = now;
        client.state = if now < deadline { State::Due } else { State::Done };
    }
}
