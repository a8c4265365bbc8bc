//! Address and credentials of client commands.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::Args;
use orlop_device_client::{Code, Connect, Connection, Status};

/// Connection options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArguments {
    /// Address of the server: unix:///PATH, http://HOST:PORT or https://HOST:PORT.
    #[arg(long, env = "ORLOP_DEVICE_SERVER", default_value = super::DEFAULT_SERVER, value_name = "ADDRESS")]
    pub(crate) server: String,

    /// File with a bearer token. Needed to write over TCP without a client certificate.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// CA (PEM) of the server's certificate.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "client_key_file")]
    client_certificate_file: Option<PathBuf>,

    /// Private key (PEM) of the client certificate.
    #[arg(long, value_name = "FILE", requires = "client_certificate_file")]
    client_key_file: Option<PathBuf>,
}

impl ServerArguments {
    pub(crate) fn open(&self) -> anyhow::Result<Connection> {
        let mut connect = Connect::to(&self.server);
        if let Some(path) = &self.token_file {
            let token = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            connect = connect.token(token.trim());
        }
        let read = |path: &PathBuf| fs::read(path).with_context(|| path.display().to_string());
        if let Some(path) = &self.ca_file {
            connect = connect.ca(read(path)?);
        }
        if let (Some(certificate), Some(key)) = (&self.client_certificate_file, &self.client_key_file) {
            connect = connect.identity(read(certificate)?, read(key)?);
        }
        Ok(connect.open()?)
    }

    /// Returns the error of a failed call, with a hint.
    pub(crate) fn explain(&self, status: &Status) -> anyhow::Error {
        let hint = match status.code() {
            Code::Unavailable => {
                format!("\nIs it running? Start one with: orlop device serve --bind-address {}", self.server)
            }
            _ => String::new(),
        };
        anyhow::anyhow!("{} ({:?}, from {}){hint}", status.message(), status.code(), self.server)
    }
}
