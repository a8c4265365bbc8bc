//! Options of authentication, with kube-apiserver's names.

use std::{fs, path::Path, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use orlop_net::{ClientVerifier, PemSource};
use orlop_server::{
    Tokens,
    auth::{
        TokenAuthenticator,
        authentication::{
            Anonymous, Cached, FrontProxy, HeaderNames, Lifetimes, TokenReviewVersion, TokenReviewWebhook,
            oidc::{
                AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, ConfigurationFile,
                IssuerConfiguration, JwtConfiguration, JwtIssuers, PrefixedClaimOrExpression,
            },
        },
        authentication_info::{AuthenticationInfo, RequestHeaderInfo},
        authenticator::AudienceAgnostic,
        issuer::Issuer,
        jose::{Algorithm, PublicKey},
        webhook::{Backoff, WebhookClient},
    },
    authentication::AuthenticationOptions,
};

use super::{
    identity::{FRONT_PROXY_CLIENT, Identity},
    trust::SharedTrust,
};
use crate::private_key::refuse_if_public;

/// Limits of `--service-account-max-token-expiration`, as in Kubernetes.
const MAX_EXPIRATION: std::ops::RangeInclusive<u64> = 3600..=1 << 32;

/// Credentials that the server accepts.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct AuthenticationFlags {
    /// CAs (PEM) of client certificates, besides the cluster's own. The common name is the user, organizations are
    /// groups. The file is followed.
    #[arg(long, value_name = "PATH")]
    client_ca_file: Option<PathBuf>,

    /// Static bearer tokens, one per line: token,user,uid,"group1,group2". Members of system:masters may do
    /// everything.
    #[arg(long, value_name = "PATH")]
    token_auth_file: Option<PathBuf>,

    /// Accept bootstrap tokens: secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    enable_bootstrap_token_auth: bool,

    /// Serve requests without a credential as system:anonymous [default: true]. What they may do is a matter of
    /// authorization: by default, to read health and version. With the authorizer AlwaysAllow they are refused.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    anonymous_auth: Option<bool>,

    /// AuthenticationConfiguration file: issuers of JSON Web Tokens, and paths of anonymous requests. The issuers in
    /// it are followed.
    #[arg(long, value_name = "PATH")]
    authentication_config: Option<PathBuf>,

    /// Audiences of the API server: a service account token must be for one of them. Defaults to the issuers.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    api_audiences: Vec<String>,

    /// Issuer of service account tokens. The first signs; tokens of all are accepted. May be repeated
    /// [default: https://kubernetes.default.svc].
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,

    /// Keys (PEM, public or private) that service account tokens are accepted from, besides the one that signs. May
    /// be repeated.
    #[arg(long, value_name = "PATH")]
    service_account_key_file: Vec<PathBuf>,

    /// Private key (PEM, RSA or ECDSA) that signs service account tokens, instead of the cluster's own.
    #[arg(long, value_name = "PATH")]
    service_account_signing_key_file: Option<PathBuf>,

    /// Address of the key set in the OpenID discovery document.
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,

    /// Longest lifetime of a service account token, at least an hour.
    #[arg(long, value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    service_account_max_token_expiration: Option<Duration>,

    /// Let tokens of pods live for a year where their clients may not renew them.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "true", require_equals = true,
        action = clap::ArgAction::Set, value_name = "BOOL")]
    service_account_extend_token_expiration: bool,

    #[command(flatten)]
    oidc: Oidc,

    /// Webhook (kubeconfig format) that reviews bearer tokens which nobody else knows.
    #[arg(long, value_name = "PATH")]
    authentication_token_webhook_config_file: Option<PathBuf>,

    /// Version of TokenReviews that the webhook is sent.
    #[arg(long, default_value = "v1beta1", value_parser = ["v1", "v1beta1"], value_name = "VERSION")]
    authentication_token_webhook_version: String,

    /// Time for which the webhook's answers are cached.
    #[arg(long, default_value = "2m", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    authentication_token_webhook_cache_ttl: Duration,

    #[command(flatten)]
    request_header: RequestHeader,
}

/// An OpenID Connect issuer.
#[derive(Clone, Debug, clap::Args)]
struct Oidc {
    /// URL of an OpenID Connect issuer whose tokens are accepted. For several issuers, or mappings in CEL, use
    /// --authentication-config.
    #[arg(long, requires = "oidc_client_id", conflicts_with = "authentication_config", value_name = "URL")]
    oidc_issuer_url: Option<String>,

    /// Audience that its tokens must have.
    #[arg(long, requires = "oidc_issuer_url", value_name = "ID")]
    oidc_client_id: Option<String>,

    /// CAs (PEM) of the issuer's server [default: the system's].
    #[arg(long, requires = "oidc_issuer_url", value_name = "PATH")]
    oidc_ca_file: Option<PathBuf>,

    /// Claim with the user's name.
    #[arg(long, default_value = "sub", value_name = "CLAIM")]
    oidc_username_claim: String,

    /// Prefix of users' names; "-" for none [default: the issuer and "#", and none for the claim email].
    #[arg(long, requires = "oidc_issuer_url", value_name = "TEXT", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,

    /// Claim with the user's groups.
    #[arg(long, requires = "oidc_issuer_url", value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,

    /// Prefix of groups.
    #[arg(long, requires = "oidc_issuer_url", default_value = "", value_name = "TEXT")]
    oidc_groups_prefix: String,

    /// Accepted signature algorithms.
    #[arg(long, value_delimiter = ',', default_value = "RS256", value_name = "LIST")]
    oidc_signing_algs: Vec<String>,

    /// Claim that tokens must have, as KEY=VALUE. May be repeated.
    #[arg(long, requires = "oidc_issuer_url", value_name = "KEY=VALUE")]
    oidc_required_claim: Vec<String>,
}

/// A front proxy.
#[derive(Clone, Debug, clap::Args)]
struct RequestHeader {
    /// CAs (PEM) of front proxies, which authenticate users and name them in headers. The file is followed.
    #[arg(long, value_name = "PATH")]
    requestheader_client_ca_file: Option<PathBuf>,

    /// Common names of front proxies; any of the CA if empty.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    requestheader_allowed_names: Vec<String>,

    /// Headers with the user's name; the first that is there counts.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-User", value_name = "LIST")]
    requestheader_username_headers: Vec<String>,

    /// Headers with the user's uid.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Uid", value_name = "LIST")]
    requestheader_uid_headers: Vec<String>,

    /// Headers with the user's groups.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Group", value_name = "LIST")]
    requestheader_group_headers: Vec<String>,

    /// Prefixes of headers with the user's extra fields.
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Extra-", value_name = "LIST")]
    requestheader_extra_headers_prefix: Vec<String>,
}

/// Verifiers of client certificates: of users, then of front proxies.
pub(super) struct Verifiers {
    pub(super) users: Arc<ClientVerifier>,
    pub(super) all: Vec<Arc<ClientVerifier>>,
    front_proxy: Option<Arc<ClientVerifier>>,
}

impl AuthenticationFlags {
    /// Returns the verifiers of client certificates. The cluster's own CA is one of those of users.
    pub(super) fn verifiers(&self, cluster_ca: &str) -> anyhow::Result<Verifiers> {
        let users = ClientVerifier::new(self.client_cas(cluster_ca)).context("--client-ca-file")?;
        let users = Arc::new(users);
        let front_proxy = match &self.request_header.requestheader_client_ca_file {
            None => None,
            Some(path) => {
                if self.request_header.requestheader_allowed_names.is_empty() {
                    self.refuse_overlap(path, cluster_ca)?;
                }
                let sources = vec![PemSource::File(path.clone())];
                Some(Arc::new(ClientVerifier::new(sources).context("--requestheader-client-ca-file")?))
            }
        };
        let all = std::iter::once(users.clone()).chain(front_proxy.clone()).collect();
        Ok(Verifiers { users, all, front_proxy })
    }

    /// Returns the CAs of users.
    pub(super) fn client_cas(&self, cluster_ca: &str) -> Vec<PemSource> {
        let own = PemSource::Inline(cluster_ca.to_owned());
        std::iter::once(own).chain(self.client_ca_file.clone().map(PemSource::File)).collect()
    }

    /// Refuses a CA that is both for users and for proxies: any user could name another.
    fn refuse_overlap(&self, proxies: &Path, cluster_ca: &str) -> anyhow::Result<()> {
        let mut users = cluster_ca.to_owned();
        if let Some(path) = &self.client_ca_file {
            users.push_str(&read(path)?);
        }
        if orlop_server::auth::pki::share_a_certificate(&users, &read(proxies)?) {
            bail!(
                "--requestheader-client-ca-file and the CAs of clients contain overlapping certificates; \
                 --requestheader-allowed-names must be specified to ensure regular client certificates cannot set \
                 authenticating proxy headers for arbitrary users"
            );
        }
        Ok(())
    }

    /// Returns the source of what is published for extension API servers. `uses_own_ca` says that this server's
    /// certificate towards them is of the cluster's own CA.
    pub(super) fn published(
        &self,
        trust: SharedTrust,
        uses_own_ca: bool,
    ) -> impl Fn() -> AuthenticationInfo + Send + Sync + use<> {
        let client_ca_file = self.client_ca_file.clone();
        let flags = self.request_header.clone();
        move || {
            let trust = trust.load();
            let own_proxy_ca = uses_own_ca.then(|| trust.front_proxy_ca.clone());
            let content = |path: &Option<PathBuf>| {
                path.as_deref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
            };
            let mut allowed_names = flags.requestheader_allowed_names.clone();
            let proxy_ca_file = &flags.requestheader_client_ca_file;
            // Without names, any certificate of the CAs in the file is that of a front proxy.
            let allows_any = proxy_ca_file.is_some() && allowed_names.is_empty();
            if own_proxy_ca.is_some() && !allows_any {
                allowed_names.push(FRONT_PROXY_CLIENT.to_owned());
            }
            let request_header = RequestHeaderInfo {
                client_ca: [own_proxy_ca.clone().unwrap_or_default(), content(proxy_ca_file)].join("\n"),
                allowed_names,
                username_headers: flags.requestheader_username_headers.clone(),
                uid_headers: flags.requestheader_uid_headers.clone(),
                group_headers: flags.requestheader_group_headers.clone(),
                extra_headers_prefix: flags.requestheader_extra_headers_prefix.clone(),
            };
            AuthenticationInfo {
                client_ca: [trust.client_ca.clone(), content(&client_ca_file)].join("\n"),
                request_header: Some(request_header),
                retired: trust.retired.clone(),
            }
        }
    }

    /// Returns the issuer of service account tokens with these options, instead of the cluster's own.
    pub(super) fn issuer(&self, own: Issuer) -> anyhow::Result<Issuer> {
        let mut issuer = match &self.service_account_signing_key_file {
            None => own,
            Some(path) => {
                refuse_if_public(path)?;
                Issuer::from_pem(&read(path)?).with_context(|| path.display().to_string())?
            }
        };
        for path in &self.service_account_key_file {
            let keys = PublicKey::all_from_pem(read(path)?.as_bytes());
            issuer = issuer.with_keys(keys.with_context(|| path.display().to_string())?);
        }
        if let Some(maximum) = self.service_account_max_token_expiration
            && !MAX_EXPIRATION.contains(&maximum.as_secs())
        {
            bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
        }
        Ok(issuer
            .with_names(self.service_account_issuer.clone())?
            .with_keys_uri(self.service_account_jwks_uri.clone())?
            .with_max_expiration(self.service_account_max_token_expiration)
            .with_extended_expiration(self.service_account_extend_token_expiration))
    }

    /// Returns the audiences of the API server; empty for the issuers.
    pub(super) fn audiences(&self) -> Vec<String> {
        self.api_audiences.clone()
    }

    /// Returns the authenticators. To be called in a runtime.
    pub(super) fn load(
        &self,
        identity: &Identity,
        issuers: &[String],
        verifiers: &Verifiers,
    ) -> anyhow::Result<AuthenticationOptions> {
        let audiences =
            if self.api_audiences.is_empty() { issuers.to_vec() } else { self.api_audiences.clone() };
        let mut tokens = identity.tokens.clone();
        if let Some(path) = &self.token_auth_file {
            refuse_if_public(path)?;
            let parsed = Tokens::parse(&read(path)?).with_context(|| path.display().to_string())?;
            tokens.extend(parsed.into_iter().map(|(token, user)| (Tokens::digest(&token), user)));
        }
        let mut remote: Vec<Arc<dyn TokenAuthenticator>> = Vec::new();
        let (mut anonymous, mut reloads) = (None, None);
        if let Some(path) = &self.authentication_config {
            let file = ConfigurationFile::load(path, issuers).map_err(anyhow::Error::msg)?;
            anonymous = file.configuration().anonymous;
            reloads = Some(file.reloads().clone());
            let file = Arc::new(file);
            file.follow();
            remote.push(Arc::new(AudienceAgnostic::new(file, audiences.clone())));
        }
        if let Some(configuration) = self.oidc.configuration()? {
            let algorithms = self.oidc.algorithms()?;
            let started = JwtIssuers::start(&configuration, issuers, &algorithms, None);
            let started = started.map_err(|errors| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                anyhow::anyhow!("invalid authentication configuration: {}", errors.join(", "))
            })?;
            remote.push(Arc::new(AudienceAgnostic::new(started, audiences.clone())));
        }
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let client = WebhookClient::from_kubeconfig(path.clone(), Backoff::default())
                .context("--authentication-token-webhook-config-file")?;
            let version = TokenReviewVersion::parse(&self.authentication_token_webhook_version);
            let version = version.map_err(anyhow::Error::msg)?;
            let ttl = self.authentication_token_webhook_cache_ttl;
            let lifetimes = Lifetimes { success: ttl, failure: ttl, errors: false };
            let webhook = TokenReviewWebhook::new(client, version, audiences);
            remote.push(Arc::new(Cached::new(webhook, lifetimes, None)));
        }
        let anonymous = match (anonymous, self.anonymous_auth) {
            (Some(_), Some(_)) => bail!(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in \
                 authentication configuration file"
            ),
            (Some(configured), None) if !configured.enabled => Anonymous::Disabled,
            (Some(configured), None) if configured.conditions.is_empty() => Anonymous::Enabled,
            (Some(configured), None) => {
                Anonymous::Paths(configured.conditions.into_iter().map(|condition| condition.path).collect())
            }
            (None, Some(false)) => Anonymous::Disabled,
            (None, _) => Anonymous::Enabled,
        };
        Ok(AuthenticationOptions {
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            remote,
            front_proxy: self.request_header.load(verifiers)?,
            anonymous,
            reloads,
            ..Tokens::from_digests(tokens).into()
        })
    }
}

impl RequestHeader {
    fn load(&self, verifiers: &Verifiers) -> anyhow::Result<Option<FrontProxy>> {
        let Some(verifier) = &verifiers.front_proxy else { return Ok(None) };
        let names = HeaderNames::new(
            &self.requestheader_username_headers,
            &self.requestheader_uid_headers,
            &self.requestheader_group_headers,
            &self.requestheader_extra_headers_prefix,
        )
        .context("--requestheader-*")?;
        Ok(Some(FrontProxy::new(verifier.clone(), self.requestheader_allowed_names.clone(), names)))
    }
}

impl Oidc {
    /// Returns the configuration that these options stand for.
    fn configuration(&self) -> anyhow::Result<Option<AuthenticationConfiguration>> {
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            return Ok(None);
        };
        let prefix = match self.oidc_username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) if !prefix.is_empty() => prefix.to_owned(),
            // A claim that is not unique between issuers must not clash.
            _ if self.oidc_username_claim != "email" => format!("{url}#"),
            _ => String::new(),
        };
        let claim = |claim: &str, prefix: String| PrefixedClaimOrExpression {
            claim: claim.to_owned(),
            prefix: Some(prefix),
            ..PrefixedClaimOrExpression::default()
        };
        let groups = self.oidc_groups_claim.as_deref();
        let rules = self.oidc_required_claim.iter().map(|required| {
            let (claim, value) = required
                .split_once('=')
                .with_context(|| format!("--oidc-required-claim {required:?}: write KEY=VALUE"))?;
            Ok(ClaimValidationRule {
                claim: claim.to_owned(),
                required_value: value.to_owned(),
                ..ClaimValidationRule::default()
            })
        });
        let jwt = JwtConfiguration {
            issuer: IssuerConfiguration {
                url: url.clone(),
                audiences: vec![client.clone()],
                certificate_authority: self
                    .oidc_ca_file
                    .as_deref()
                    .map(read)
                    .transpose()?
                    .unwrap_or_default(),
                ..IssuerConfiguration::default()
            },
            claim_mappings: ClaimMappings {
                username: claim(&self.oidc_username_claim, prefix),
                groups: groups
                    .map(|groups| claim(groups, self.oidc_groups_prefix.clone()))
                    .unwrap_or_default(),
                ..ClaimMappings::default()
            },
            claim_validation_rules: rules.collect::<anyhow::Result<_>>()?,
            ..JwtConfiguration::default()
        };
        Ok(Some(AuthenticationConfiguration { jwt: vec![jwt], anonymous: None }))
    }

    fn algorithms(&self) -> anyhow::Result<Vec<Algorithm>> {
        let parse = |name: &String| {
            Algorithm::parse(name).with_context(|| format!("oidc: unsupported signing alg: {name:?}"))
        };
        self.oidc_signing_algs.iter().map(parse).collect()
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
