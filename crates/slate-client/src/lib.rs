//! Slate's protocol, and an asynchronous client for it.
//!
//! ```no_run
//! # async fn example() -> Result<(), slate_client::Error> {
//! use bson::doc;
//! use slate_client::{Client, Options};
//!
//! let client = Client::new(Options::new("127.0.0.1:9600"));
//! client.create_collection("accounts", Vec::new()).await?;
//! client.insert("accounts", &doc! { "status": "active" }).await?;
//! let active = client.find("accounts", doc! { "status": "active" }).await?;
//! # let _ = active;
//! # Ok(())
//! # }
//! ```

mod client;
mod connection;
mod point_read;
pub mod protocol;

pub use client::{Client, Options, Updated};

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached, or the connection broke. A write may or may not have happened.
    #[error("connection to {address}: {reason}")]
    Connection {
        /// Address of the server.
        address: String,
        /// Reason of the failure.
        reason: String,
    },
    /// No answer came in time. A write may or may not have happened.
    #[error("no answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// The server refused or failed.
    #[error("{message}")]
    Server {
        /// Reason.
        code: protocol::ErrorCode,
        /// Explanation.
        message: String,
    },
    /// A message could not be encoded or decoded.
    #[error("protocol: {0}")]
    Protocol(String),
}

impl Error {
    /// Returns the server's reason, if it answered.
    pub fn code(&self) -> Option<protocol::ErrorCode> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }
}
