//! Webhook tokens: another server reviews the token.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    User,
    authenticator::{Authenticated, AuthenticationError, Outcome, TokenAuthenticator, intersection},
    webhook::WebhookClient,
};

/// Version of TokenReviews that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReviewVersion {
    /// `authentication.k8s.io/v1`.
    V1,
    /// `authentication.k8s.io/v1beta1`.
    V1Beta1,
}

impl TokenReviewVersion {
    /// Parses the value of `--authentication-token-webhook-version`.
    pub fn parse(version: &str) -> Result<Self, String> {
        match version {
            "v1" => Ok(Self::V1),
            "v1beta1" => Ok(Self::V1Beta1),
            other => Err(format!(
                "unsupported authentication webhook version {other:?}, supported versions are \"v1\", \"v1beta1\""
            )),
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// Asks a webhook whose token it is.
#[derive(Debug)]
pub struct TokenReviewWebhook {
    client: WebhookClient,
    version: TokenReviewVersion,
    audiences: Vec<String>,
}

impl TokenReviewWebhook {
    /// Returns an authenticator for the API server's audiences. Put a cache before it.
    pub fn new(client: WebhookClient, version: TokenReviewVersion, audiences: Vec<String>) -> Self {
        Self { client, version, audiences }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: UserInfo,
    audiences: Option<Vec<String>>,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: Option<String>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[async_trait]
impl TokenAuthenticator for TokenReviewWebhook {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        let mut review = json!({
            "apiVersion": self.version.api_version(), "kind": "TokenReview",
            "metadata": {}, "spec": {"token": token}, "status": {"user": {}},
        });
        if !audiences.is_empty() {
            review["spec"]["audiences"] = json!(audiences);
        }
        let answer = self.client.post(&review).await.map_err(|error| {
            tracing::error!(%error, "failed to make webhook authenticator request");
            AuthenticationError::invalid(error.message)
        })?;
        let status = status(answer).map_err(|why| {
            tracing::error!(why, "the authentication webhook's answer is not a TokenReview");
            AuthenticationError::Invalid(why)
        })?;
        let shared = match status.audiences.as_deref() {
            None | Some([]) => intersection(audiences, &self.audiences),
            Some(answered) => intersection(audiences, answered),
        };
        if shared.is_empty() && !audiences.is_empty() {
            return Ok(None);
        }
        if !status.authenticated {
            return match status.error.filter(|error| !error.is_empty()) {
                Some(error) => Err(AuthenticationError::Invalid(error)),
                None => Ok(None),
            };
        }
        let name = status.user.username.unwrap_or_default();
        if name.is_empty() {
            return Err(AuthenticationError::invalid("the authentication webhook named no user"));
        }
        let user = User {
            name,
            uid: status.user.uid.unwrap_or_default(),
            groups: status.user.groups.unwrap_or_default(),
            extra: status.user.extra.unwrap_or_default(),
        };
        Ok(Some(Authenticated { user: Arc::new(user), audiences: shared, ..Authenticated::default() }))
    }
}

fn status(answer: Value) -> Result<Status, String> {
    let review: Review = serde_json::from_value(answer).map_err(|error| error.to_string())?;
    let known = [TokenReviewVersion::V1, TokenReviewVersion::V1Beta1].map(TokenReviewVersion::api_version);
    if review.kind != "TokenReview" || !known.contains(&review.api_version.as_str()) {
        return Err(format!("no kind {:?} is registered for version {:?}", review.kind, review.api_version));
    }
    Ok(review.status)
}
