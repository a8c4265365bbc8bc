//! Options for browsers and load balancers, named as kube-apiserver's.

use orlop_server::{BadHygiene, Hygiene};

/// Browsers and load balancers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Browsers and load balancers")]
pub(super) struct HygieneOptions {
    /// Directives of the Strict-Transport-Security header: max-age=SECONDS, includeSubDomains, preload.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    strict_transport_security_directives: Vec<String>,

    /// Origins that browsers may send requests from: regular expressions of scheme, host and port, such as
    /// "^https://console\\.example\\.org$".
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    cors_allowed_origins: Vec<String>,

    /// Fraction of requests, up to 0.02, after which an HTTP/2 client is told to open another connection, so that a
    /// load balancer can choose another server for it.
    #[arg(long, default_value_t = 0.0, value_name = "FRACTION")]
    goaway_chance: f64,
}

impl HygieneOptions {
    /// Validates the options.
    pub(super) fn hygiene(&self) -> Result<Hygiene, BadHygiene> {
        Hygiene::new(
            &self.strict_transport_security_directives,
            &self.cors_allowed_origins,
            self.goaway_chance,
        )
    }
}
