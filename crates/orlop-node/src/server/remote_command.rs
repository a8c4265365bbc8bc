//! `/exec` and `/attach`: programs in containers, over WebSockets or SPDY.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::{
    Body,
    channels::{self, Channels, End, Input, Output},
    spdy_command, spdy_upgrade, text, websocket,
};
use crate::{
    context::Node,
    runtime::Container,
    shim::{
        config::{Exec, Outcome},
        frames::{self, channel},
    },
};

/// Kind of a remote command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exec,
    Attach,
}

/// Streams that a client asks for, and its command.
#[derive(Clone, Debug, Default)]
struct Options {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
    command: Vec<String>,
}

/// Answers a request for a remote command.
pub(super) async fn answer(
    node: &Arc<Node>,
    kind: Kind,
    namespace: &str,
    pod: &str,
    container: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let options = parse(request.uri().query().unwrap_or_default());
    if !options.stdin && !options.stdout && !options.stderr {
        return text(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
    }
    let entry = node.directory.get(namespace, pod);
    let Some(entry) = entry else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let live = entry.containers.get(container).and_then(|runs| runs.live.clone());
    let Some(live) = live else {
        return text(StatusCode::NOT_FOUND, format!("container not found ({container:?})"));
    };
    if spdy_upgrade::is_upgrade(request.headers()) {
        return over_spdy(live, kind, options, request);
    }
    if !websocket::is_upgrade(request.headers()) {
        return text(StatusCode::BAD_REQUEST, "Upgrade request required");
    }
    let Some(protocol) = websocket::protocol(request.headers()) else {
        return text(StatusCode::FORBIDDEN, "no subprotocol of the client is supported");
    };
    let Some(response) = websocket::accept(request.headers(), protocol.name()) else {
        return text(StatusCode::BAD_REQUEST, "the request is not a WebSocket handshake");
    };
    tokio::spawn(async move {
        let Some(socket) = websocket::upgrade(request).await else { return };
        let (channels, carrier) = channels::pair();
        let writes: Vec<u8> = [(options.stdout, 1), (options.stderr, 2), (true, 3)]
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, channel)| channel)
            .collect();
        tokio::join!(
            run(live, kind, options, channels),
            websocket::carry(socket, protocol, carrier, &writes)
        );
    });
    response
}

fn over_spdy(live: Container, kind: Kind, options: Options, request: Request<Incoming>) -> Response<Body> {
    let (response, protocol) = match spdy_upgrade::accept(request.headers(), spdy_command::PROTOCOLS) {
        Ok(accepted) => accepted,
        Err(refusal) => return *refusal,
    };
    // A stream each, and one for the outcome; the size of a terminal came with version 3.
    let has_resize = options.tty && !matches!(protocol, "v2.channel.k8s.io" | "channel.k8s.io");
    let wanted = [true, options.stdin, options.stdout, options.stderr, has_resize];
    let expected = wanted.into_iter().filter(|wanted| *wanted).count();
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let (channels, carrier) = channels::pair();
        let carried = spdy_command::carry(TokioIo::new(upgraded), protocol, carrier, expected);
        tokio::join!(run(live, kind, options, channels), carried);
    });
    response
}

fn parse(query: &str) -> Options {
    let mut options = Options::default();
    for (name, value) in websocket::query_pairs(query) {
        let is_true = matches!(value.as_str(), "1" | "true");
        match name.as_str() {
            "input" | "stdin" => options.stdin = is_true,
            "output" | "stdout" => options.stdout = is_true,
            "error" | "stderr" => options.stderr = is_true,
            "tty" => options.tty = is_true,
            "command" => options.command.push(value),
            _ => {}
        }
    }
    // A terminal has one output.
    options.stderr &= !options.tty;
    options
}

/// Runs a remote command between its channels and the container's monitor.
async fn run(container: Container, kind: Kind, options: Options, channels: Channels) {
    let connected = match kind {
        Kind::Exec => {
            let exec = Exec {
                argv: options.command.clone(),
                stdin: options.stdin,
                tty: options.tty,
                ends_with_client: false,
            };
            container.exec(exec).await
        }
        Kind::Attach => container.attach().await,
    };
    let output = channels.output.clone();
    let end = match connected {
        Ok(stream) => relay(stream, &options, channels, kind).await,
        Err(error) => End::Error(error.to_string()),
    };
    let _ = output.send(Output::End(end)).await;
}

/// Copies streams until the command ends or the client goes.
async fn relay(stream: UnixStream, options: &Options, channels: Channels, kind: Kind) -> End {
    let (mut reader, mut writer) = stream.into_split();
    let Channels { mut input, output } = channels;
    let wants_stdin = options.stdin;
    let sending = tokio::spawn(async move {
        while let Some(message) = input.recv().await {
            let sent = match message {
                Input::Stdin(bytes) if wants_stdin => {
                    frames::write(&mut writer, channel::STDIN, &bytes).await
                }
                Input::StdinEnd if wants_stdin => frames::write(&mut writer, channel::STDIN_END, b"").await,
                Input::Resize(columns, rows) => {
                    frames::write(&mut writer, channel::RESIZE, &frames::resize(columns, rows)).await
                }
                Input::Stdin(_) | Input::StdinEnd => Ok(()),
            };
            if sent.is_err() {
                return;
            }
        }
        // The client has gone: its input ends.
        if wants_stdin {
            let _ = frames::write(&mut writer, channel::STDIN_END, b"").await;
        }
    });
    let end = loop {
        let (channel, bytes) = match frames::read(&mut reader).await {
            Ok(Some(frame)) => frame,
            // A client of attach reads the log then.
            Ok(None) | Err(_) => break End::Error("the container ended".into()),
        };
        let bytes = Bytes::from(bytes);
        let sent = match channel {
            channel::STDOUT if options.stdout => output.send(Output::Stdout(bytes)).await,
            channel::STDERR if options.stderr => output.send(Output::Stderr(bytes)).await,
            channel::OUTCOME => {
                break match serde_json::from_slice(&bytes) {
                    Ok(Outcome::Exited(_)) if kind == Kind::Attach => End::Success,
                    Ok(Outcome::Exited(code)) => End::Exited(code),
                    Ok(Outcome::Error(error)) => End::Error(error),
                    Err(error) => End::Error(error.to_string()),
                };
            }
            _ => Ok(()),
        };
        if sent.is_err() {
            break End::Error("the client is gone".to_owned());
        }
    };
    sending.abort();
    end
}
