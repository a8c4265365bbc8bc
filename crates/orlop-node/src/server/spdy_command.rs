//! Remote commands over SPDY: a stream each for input, output, errors, size and outcome.

use std::{io, time::Duration};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{sync::mpsc, time::timeout};

use super::{
    channels::{Carrier, Input, Output},
    spdy::{self, Stream},
    websocket::TerminalSize,
};

/// Versions of the protocol, the preferred one first.
pub(super) const PROTOCOLS: &[&str] =
    &["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// Time for the client to open its streams.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);

type Connection = TokioIo<Upgraded>;

/// Streams of a client, by their type.
#[derive(Debug, Default)]
struct Streams {
    error: Option<Stream<Connection>>,
    stdin: Option<Stream<Connection>>,
    stdout: Option<Stream<Connection>>,
    stderr: Option<Stream<Connection>>,
    resize: Option<Stream<Connection>>,
}

/// Carries a remote command over a connection until its end. `expected` is the number of streams.
pub(super) async fn carry(connection: Connection, protocol: &str, carrier: Carrier, expected: usize) {
    let (sender, receiver) = mpsc::channel(8);
    let has_status = matches!(protocol, "v5.channel.k8s.io" | "v4.channel.k8s.io");
    let serving = tokio::spawn(spdy::serve(connection, sender));
    let carried = async {
        let (streams, _rest) = timeout(STREAMS_TIMEOUT, collect(receiver, expected)).await.ok()?;
        relay(streams, carrier, has_status).await.ok()
    };
    let _ = carried.await;
    // The client closes the connection once it has read everything.
    let _ = timeout(STREAMS_TIMEOUT, serving).await;
}

async fn collect(
    mut receiver: mpsc::Receiver<Stream<Connection>>,
    expected: usize,
) -> (Streams, mpsc::Receiver<Stream<Connection>>) {
    let mut streams = Streams::default();
    for _ in 0..expected {
        let Some(stream) = receiver.recv().await else { break };
        match stream.headers.get("streamtype").map(String::as_str) {
            Some("error") => streams.error = Some(stream),
            Some("stdin") => streams.stdin = Some(stream),
            Some("stdout") => streams.stdout = Some(stream),
            Some("stderr") => streams.stderr = Some(stream),
            Some("resize") => streams.resize = Some(stream),
            _ => {}
        }
    }
    (streams, receiver)
}

async fn relay(streams: Streams, carrier: Carrier, has_status: bool) -> io::Result<()> {
    let Carrier { input, mut output } = carrier;
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(mut stdin) = streams.stdin {
        let input = input.clone();
        tasks.spawn(async move {
            while let Some(bytes) = stdin.data.recv().await {
                if input.send(Input::Stdin(bytes)).await.is_err() {
                    return;
                }
            }
            let _ = input.send(Input::StdinEnd).await;
        });
    }
    if let Some(mut resize) = streams.resize {
        let input = input.clone();
        tasks.spawn(async move {
            while let Some(bytes) = resize.data.recv().await {
                if let Ok(size) = serde_json::from_slice::<TerminalSize>(&bytes) {
                    let _ = input.send(Input::Resize(size.width, size.height)).await;
                }
            }
        });
    }
    while let Some(next) = output.recv().await {
        match next {
            Output::Stdout(bytes) => {
                if let Some(stream) = &streams.stdout {
                    stream.writer.write(&bytes).await?;
                }
            }
            Output::Stderr(bytes) => {
                if let Some(stream) = &streams.stderr {
                    stream.writer.write(&bytes).await?;
                }
            }
            Output::End(end) => {
                let text = if has_status { Some(end.to_status().to_string()) } else { end.to_text() };
                if let (Some(stream), Some(text)) = (&streams.error, text) {
                    stream.writer.write(text.as_bytes()).await?;
                }
                break;
            }
        }
    }
    for stream in [&streams.stdout, &streams.stderr, &streams.error].into_iter().flatten() {
        stream.writer.finish().await?;
    }
    Ok(())
}
