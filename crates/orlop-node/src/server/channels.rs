//! Streams of a remote command, whatever protocol carries them.

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

/// Messages that wait for a slow side.
const QUEUE: usize = 8;

/// A message of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Stdin(Bytes),
    StdinEnd,
    /// Columns and rows of the terminal.
    Resize(u16, u16),
}

/// A message to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The end of the command: the last message.
    End(End),
}

/// The end of a remote command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Success,
    /// Exit code of the command.
    Exited(i32),
    Error(String),
}

impl End {
    /// Returns the Status that ends a command in protocols from version 4 on.
    pub(super) fn to_status(&self) -> serde_json::Value {
        match self {
            Self::Success | Self::Exited(0) => json!({"metadata": {}, "status": "Success"}),
            Self::Exited(code) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Self::Error(message) => json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("Internal error occurred: {message}"),
                "details": {"causes": [{"message": message}]},
            }),
        }
    }

    /// Returns the text of an error in older protocols; `None` for success.
    pub(super) fn to_text(&self) -> Option<String> {
        match self {
            Self::Success | Self::Exited(0) => None,
            Self::Exited(code) => {
                Some(format!("command terminated with non-zero exit code: exit status {code}"))
            }
            Self::Error(message) => Some(message.clone()),
        }
    }
}

/// Both directions of a remote command.
#[derive(Debug)]
pub(super) struct Channels {
    pub(super) input: mpsc::Receiver<Input>,
    pub(super) output: mpsc::Sender<Output>,
}

/// The other side of [`Channels`].
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) input: mpsc::Sender<Input>,
    pub(super) output: mpsc::Receiver<Output>,
}

/// Returns both sides of a remote command's streams.
pub(super) fn pair() -> (Channels, Carrier) {
    let (input_sender, input) = mpsc::channel(QUEUE);
    let (output, output_receiver) = mpsc::channel(QUEUE);
    (Channels { input, output }, Carrier { input: input_sender, output: output_receiver })
}
