//! Audit options, named as kube-apiserver's.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use orlop_audit::{
    Auditor, Metrics, Policy,
    backend::{
        Backend, BatchOptions, Format, LogBackend, LogOptions, Mode, RotationOptions, Throttle,
        TruncateOptions, WebhookBackend, WebhookOptions,
    },
    policy,
};

/// Policy file that stands for the built-in policy.
const DEFAULT_POLICY: &str = "default";

/// Audit of requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audit")]
pub(super) struct AuditOptions {
    /// Audit policy (audit.k8s.io/v1 Policy): the level of each request. "default", and no policy file at all with a
    /// backend, stand for the built-in policy: metadata of everything but probes, events and leases.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,

    /// File that audit events are written to, mode 0600; "-" for standard output.
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// Format of the audit log: "json", or "legacy" for a line of text.
    #[arg(long, default_value = "json", value_parser = ["json", "legacy"], value_name = "FORMAT")]
    audit_log_format: String,

    /// Days that rotated audit logs are kept; 0 for ever.
    #[arg(long, default_value_t = 366, value_name = "DAYS")]
    audit_log_maxage: u64,

    /// Number of rotated audit logs that are kept; 0 for all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    audit_log_maxbackup: usize,

    /// Megabytes of the audit log before it is rotated; 0 for no rotation.
    #[arg(long, default_value_t = 100, value_name = "MB")]
    audit_log_maxsize: u64,

    /// Compress rotated audit logs with gzip.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_log_compress: bool,

    /// Relation between requests and their events in the log: "batch" queues events, "blocking" answers a request
    /// when its event is written, "blocking-strict" also fails a request whose first event cannot be written.
    #[arg(long, default_value = "blocking", value_parser = MODES, value_name = "MODE")]
    audit_log_mode: String,

    /// Events that may wait for the log; more are dropped and counted.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    audit_log_batch_buffer_size: usize,

    /// Events of a batch in the log [default: all that are queued].
    #[arg(long, value_name = "COUNT")]
    audit_log_batch_max_size: Option<usize>,

    /// Time that an event waits for others of its batch in the log.
    #[arg(long, default_value = "0", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    audit_log_batch_max_wait: Duration,

    /// Limit the rate of batches in the log.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_log_batch_throttle_enable: bool,

    /// Batches a second in the log, on average.
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    audit_log_batch_throttle_qps: f64,

    /// Batches at once in the log after a pause.
    #[arg(long, default_value_t = 15, value_name = "COUNT")]
    audit_log_batch_throttle_burst: u32,

    /// Leave the objects out of events that are too large for the log.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_log_truncate_enabled: bool,

    /// Bytes of an event in the log.
    #[arg(long, default_value_t = EVENT_BYTES, value_name = "BYTES")]
    audit_log_truncate_max_event_size: usize,

    /// Bytes of a batch in the log.
    #[arg(long, default_value_t = BATCH_BYTES, value_name = "BYTES")]
    audit_log_truncate_max_batch_size: usize,

    /// Version of events in the log.
    #[arg(long, default_value = VERSION, value_parser = [VERSION], hide = true)]
    audit_log_version: String,

    /// Webhook that audit events are posted to, in the form of a kubeconfig.
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,

    /// Time before the second attempt to post events.
    #[arg(long, alias = "audit-webhook-batch-initial-backoff", default_value = "10s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    audit_webhook_initial_backoff: Duration,

    /// Relation between requests and their events to the webhook, as --audit-log-mode.
    #[arg(long, default_value = "batch", value_parser = MODES, value_name = "MODE")]
    audit_webhook_mode: String,

    /// Events that may wait for the webhook; more are dropped and counted.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    audit_webhook_batch_buffer_size: usize,

    /// Events of a batch.
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    audit_webhook_batch_max_size: usize,

    /// Time that an event waits for others of its batch.
    #[arg(long, default_value = "30s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    audit_webhook_batch_max_wait: Duration,

    /// Limit the rate of batches.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "true", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_batch_throttle_enable: bool,

    /// Batches a second, on average.
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    audit_webhook_batch_throttle_qps: f64,

    /// Batches at once after a pause.
    #[arg(long, default_value_t = 15, value_name = "COUNT")]
    audit_webhook_batch_throttle_burst: u32,

    /// Leave the objects out of events that are too large for the webhook.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_truncate_enabled: bool,

    /// Bytes of an event to the webhook.
    #[arg(long, default_value_t = EVENT_BYTES, value_name = "BYTES")]
    audit_webhook_truncate_max_event_size: usize,

    /// Bytes of a batch to the webhook.
    #[arg(long, default_value_t = BATCH_BYTES, value_name = "BYTES")]
    audit_webhook_truncate_max_batch_size: usize,

    /// Version of events to the webhook.
    #[arg(long, default_value = VERSION, value_parser = [VERSION], hide = true)]
    audit_webhook_version: String,
}

const MODES: [&str; 3] = ["batch", "blocking", "blocking-strict"];
const VERSION: &str = "audit.k8s.io/v1";
const EVENT_BYTES: usize = 100 << 10;
const BATCH_BYTES: usize = 10 << 20;

impl AuditOptions {
    /// Opens the backends. `None` if there are none.
    pub(super) fn open(&self) -> anyhow::Result<Option<Arc<Auditor>>> {
        if self.audit_log_path.is_none() && self.audit_webhook_config_file.is_none() {
            if self.audit_policy_file.is_some() {
                bail!("--audit-policy-file needs --audit-log-path or --audit-webhook-config-file");
            }
            return Ok(None);
        }
        let policy = match self.audit_policy_file.as_deref() {
            Some(path) if path.as_os_str() != DEFAULT_POLICY => Policy::read(path)?,
            _ => Policy::parse(policy::DEFAULT.as_bytes())?,
        };
        let metrics = Metrics::default();
        let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
        if let Some(path) = &self.audit_log_path {
            let log = LogBackend::open(self.log(path.clone())?, metrics.clone());
            backends
                .push(Arc::new(log.with_context(|| format!("cannot open audit log {}", path.display()))?));
        }
        if let Some(kubeconfig) = &self.audit_webhook_config_file {
            let webhook = WebhookBackend::start(self.webhook(kubeconfig.clone())?, metrics.clone());
            backends.push(Arc::new(webhook.context("initializing audit webhook")?));
        }
        Ok(Some(Arc::new(Auditor::new(policy, backends, metrics))))
    }

    fn log(&self, path: PathBuf) -> anyhow::Result<LogOptions> {
        Ok(LogOptions {
            path,
            rotation: RotationOptions {
                file_bytes_max: self.audit_log_maxsize.saturating_mul(1 << 20),
                age_days_max: self.audit_log_maxage,
                backups_max: self.audit_log_maxbackup,
                compress: self.audit_log_compress,
            },
            format: if self.audit_log_format == "legacy" { Format::Legacy } else { Format::Json },
            batch: BatchOptions {
                mode: mode(&self.audit_log_mode),
                buffer_events_max: positive("log buffer size", self.audit_log_batch_buffer_size)?,
                batch_events_max: match self.audit_log_batch_max_size {
                    Some(size) => positive("log max batch size", size)?,
                    None => usize::MAX,
                },
                batch_wait_max: self.audit_log_batch_max_wait,
                throttle: throttle(
                    "log",
                    self.audit_log_batch_throttle_enable,
                    self.audit_log_batch_throttle_qps,
                    self.audit_log_batch_throttle_burst,
                )?,
            },
            truncate: truncate(
                "log",
                self.audit_log_truncate_enabled,
                self.audit_log_truncate_max_event_size,
                self.audit_log_truncate_max_batch_size,
            )?,
        })
    }

    fn webhook(&self, kubeconfig: PathBuf) -> anyhow::Result<WebhookOptions> {
        Ok(WebhookOptions {
            kubeconfig,
            initial_backoff: self.audit_webhook_initial_backoff,
            batch: BatchOptions {
                mode: mode(&self.audit_webhook_mode),
                buffer_events_max: positive("webhook buffer size", self.audit_webhook_batch_buffer_size)?,
                batch_events_max: positive("webhook max batch size", self.audit_webhook_batch_max_size)?,
                batch_wait_max: self.audit_webhook_batch_max_wait,
                throttle: throttle(
                    "webhook",
                    self.audit_webhook_batch_throttle_enable,
                    self.audit_webhook_batch_throttle_qps,
                    self.audit_webhook_batch_throttle_burst,
                )?,
            },
            truncate: truncate(
                "webhook",
                self.audit_webhook_truncate_enabled,
                self.audit_webhook_truncate_max_event_size,
                self.audit_webhook_truncate_max_batch_size,
            )?,
        })
    }
}

fn mode(name: &str) -> Mode {
    match name {
        "batch" => Mode::Batch,
        "blocking-strict" => Mode::BlockingStrict,
        _ => Mode::Blocking,
    }
}

fn positive(what: &str, number: usize) -> anyhow::Result<usize> {
    if number == 0 {
        bail!("invalid audit batch {what} 0, must be a positive number");
    }
    Ok(number)
}

fn throttle(plugin: &str, enabled: bool, qps: f64, burst: u32) -> anyhow::Result<Option<Throttle>> {
    if enabled && !(qps > 0.0 && qps.is_finite()) {
        bail!("invalid audit batch {plugin} throttle QPS {qps}, must be a positive number");
    }
    if enabled && burst == 0 {
        bail!("invalid audit batch {plugin} throttle burst 0, must be a positive number");
    }
    Ok(enabled.then_some(Throttle { qps, burst }))
}

fn truncate(
    plugin: &str,
    enabled: bool,
    event: usize,
    batch: usize,
) -> anyhow::Result<Option<TruncateOptions>> {
    if event == 0 {
        bail!("invalid audit truncate {plugin} max event size 0, must be a positive number");
    }
    if batch < event {
        bail!(
            "invalid audit truncate {plugin} max batch size {batch}, must be greater than max event size ({event})"
        );
    }
    Ok(enabled.then_some(TruncateOptions { event_bytes_max: event, batch_bytes_max: batch }))
}
