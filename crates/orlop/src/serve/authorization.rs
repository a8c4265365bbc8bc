//! Authorization options, named as kube-apiserver's.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use orlop_server::{
    auth::{
        Authorizer, UnionAuthorizer,
        authorization::{
            AuthorizationConfiguration, DecisionMetrics, FailurePolicy, WebhookAuthorizer,
            WebhookConfiguration, configuration::TYPES,
        },
        files::Files,
    },
    authorization::BuiltinAuthorizers,
    cluster::Cluster,
};

/// Interval at which the configuration file is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// Limit on one call of the webhook of `--authorization-mode`, as in Kubernetes.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const LEGACY: [&str; 5] = [
    "authorization_mode",
    "authorization_webhook_config_file",
    "authorization_webhook_version",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
];

/// Authorization of requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authorization")]
pub(super) struct AuthorizationOptions {
    /// Authorizers, in order; the first that allows or denies a request decides. Of: Node, RBAC, Webhook,
    /// AlwaysAllow, AlwaysDeny [default: Node,RBAC].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    authorization_mode: Vec<String>,

    /// Configuration of the authorizers (apiserver.config.k8s.io/v1 AuthorizationConfiguration), for several webhooks
    /// and match conditions. Changes of the file take effect while the server runs. Instead of the options above
    /// and below.
    #[arg(long, value_name = "FILE", conflicts_with_all = LEGACY)]
    authorization_config: Option<PathBuf>,

    /// Kubeconfig of the server that mode Webhook asks.
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,

    /// Version of the SubjectAccessReview that is sent to the webhook [default: v1beta1].
    #[arg(long, value_parser = ["v1", "v1beta1"], value_name = "VERSION")]
    authorization_webhook_version: Option<String>,

    /// Time for which requests that the webhook allowed are cached [default: 5m].
    #[arg(long, value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,

    /// Time for which requests that the webhook did not allow are cached [default: 30s].
    #[arg(long, value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
}

impl AuthorizationOptions {
    /// Sets the authorizers of a cluster. Follows the configuration file, if there is one, until the returned task is
    /// aborted.
    pub(super) fn install(
        &self,
        cluster: &Cluster,
        metrics: &DecisionMetrics,
    ) -> anyhow::Result<tokio::task::JoinHandle<()>> {
        let builtin = Builtin { authorizers: BuiltinAuthorizers::new(cluster), metrics: metrics.clone() };
        let union = cluster.authorizer().clone();
        let Some(path) = self.authorization_config.clone() else {
            union.replace(build(&self.of_modes()?, &builtin)?);
            return Ok(tokio::spawn(async {}));
        };
        let mut files = Files::new(vec![path.clone()]);
        let configuration = AuthorizationConfiguration::read(&path).map_err(anyhow::Error::msg)?;
        union.replace(build(&configuration, &builtin)?);
        Ok(tokio::spawn(async move {
            loop {
                tokio::time::sleep(RELOAD_INTERVAL).await;
                if !files.changed_now() {
                    continue;
                }
                match reload(&path, &configuration, &builtin, &union) {
                    Ok(()) => {
                        tracing::info!(path = %path.display(), "reloaded the authorization configuration");
                    }
                    Err(error) => {
                        tracing::error!(%error, "the authorization configuration stays as it was");
                    }
                }
            }
        }))
    }

    /// Returns true if everybody may do everything, whoever they are.
    pub(super) fn allows_everybody(&self) -> anyhow::Result<bool> {
        let configuration = match &self.authorization_config {
            Some(path) => AuthorizationConfiguration::read(path).map_err(anyhow::Error::msg)?,
            None => self.of_modes()?,
        };
        Ok(configuration.authorizers.iter().any(|authorizer| authorizer.kind == "AlwaysAllow"))
    }

    /// Returns the configuration that the options besides the file describe.
    fn of_modes(&self) -> anyhow::Result<AuthorizationConfiguration> {
        let modes = match self.authorization_mode.as_slice() {
            [] => vec!["Node".to_owned(), "RBAC".to_owned()],
            modes => modes.to_vec(),
        };
        for (index, mode) in modes.iter().enumerate() {
            if !TYPES.contains(&mode.as_str()) {
                bail!("authorization-mode {mode:?} is not a valid mode: write one of {}", TYPES.join(", "));
            }
            if modes[..index].contains(mode) {
                bail!("authorization-mode {modes:?} has mode specified more than once");
            }
        }
        let has_webhook = modes.iter().any(|mode| mode == "Webhook");
        let webhook = match &self.authorization_webhook_config_file {
            None if has_webhook => bail!("authorization-mode Webhook's authorization config file not passed"),
            Some(_) if !has_webhook => {
                bail!("cannot specify --authorization-webhook-config-file without mode Webhook")
            }
            None => None,
            Some(path) => Some(WebhookConfiguration {
                authorized_ttl: self
                    .authorization_webhook_cache_authorized_ttl
                    .unwrap_or(Duration::from_secs(300)),
                unauthorized_ttl: self
                    .authorization_webhook_cache_unauthorized_ttl
                    .unwrap_or(Duration::from_secs(30)),
                timeout: WEBHOOK_TIMEOUT,
                version: self.authorization_webhook_version.clone().unwrap_or("v1beta1".to_owned()),
                failure_policy: FailurePolicy::NoOpinion,
                kube_config_file: path.clone(),
                match_conditions: Vec::new(),
            }),
        };
        Ok(AuthorizationConfiguration::of_modes(&modes, webhook.as_ref()))
    }
}

/// Puts a changed file in force. One that cannot be used changes nothing.
fn reload(
    path: &std::path::Path,
    initial: &AuthorizationConfiguration,
    builtin: &Builtin,
    union: &UnionAuthorizer,
) -> anyhow::Result<()> {
    let configuration = AuthorizationConfiguration::read(path).map_err(anyhow::Error::msg)?;
    initial.check_reload(&configuration).map_err(anyhow::Error::msg)?;
    union.replace(build(&configuration, builtin)?);
    Ok(())
}

/// Authorizers of the cluster, and the counts of all decisions.
struct Builtin {
    authorizers: BuiltinAuthorizers,
    metrics: DecisionMetrics,
}

fn build(
    configuration: &AuthorizationConfiguration,
    builtin: &Builtin,
) -> anyhow::Result<Vec<Arc<dyn Authorizer>>> {
    let authorizers = configuration.authorizers.iter().map(|configured| {
        let (kind, name) = (&configured.kind, &configured.name);
        let authorizer = match &configured.webhook {
            Some(webhook) => Arc::new(
                WebhookAuthorizer::new(name, webhook)
                    .with_context(|| format!("the authorization webhook {name:?} cannot be used"))?,
            ),
            None => {
                builtin.authorizers.get(kind).with_context(|| format!("there is no authorizer {kind:?}"))?
            }
        };
        Ok(builtin.metrics.count(kind, name, authorizer))
    });
    authorizers.collect()
}
