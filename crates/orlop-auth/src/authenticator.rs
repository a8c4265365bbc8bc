//! The interface of token authenticators, and their union.

use std::{collections::BTreeSet, fmt, sync::Arc};

use async_trait::async_trait;
use orlop_api::{
    status::Status,
    user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, UserInfo},
};

use crate::lookup::Observation;

/// A user, and what is known of the credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The intersection of the credential's audiences and those that were accepted.
    pub audiences: Vec<String>,
    /// Time after which the credential is not valid any more, in seconds since the epoch.
    pub expires: Option<i64>,
    /// Objects that the credential depends on: once one changes, it is to be authenticated again.
    pub depends_on: Vec<Observation>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations of the request's audit event.
    pub annotations: Vec<(&'static str, String)>,
}

impl Authenticated {
    /// Returns a user whose credential has no audiences.
    pub fn user(user: UserInfo) -> Self {
        Self { user: Arc::new(user), ..Self::default() }
    }
}

/// A credential that belongs to an authenticator and is not valid.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// The credential is expired, revoked, or for another audience.
    #[error("{0}")]
    Invalid(String),
    /// The credential could not be checked.
    #[error("cannot check the token: {}", .0.message)]
    Unavailable(Status),
}

impl AuthenticationError {
    /// Returns an invalid credential.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }
}

impl From<AuthenticationError> for Status {
    /// Unauthorized, without a reason: it would help to guess tokens.
    fn from(error: AuthenticationError) -> Self {
        match error {
            AuthenticationError::Invalid(why) => {
                tracing::debug!(why, "invalid credentials");
                Self::unauthorized()
            }
            AuthenticationError::Unavailable(status) => status,
        }
    }
}

/// The outcome of authentication: a user, `None` if the credential is not of the authenticator's sort, or an error.
pub type Outcome = Result<Option<Authenticated>, AuthenticationError>;

/// Authenticates bearer tokens of one sort.
#[async_trait]
pub trait TokenAuthenticator: fmt::Debug + Send + Sync {
    /// Returns the user of a token for one of some audiences; empty to accept any.
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome;
}

/// Tries each authenticator in order. The first that returns a user wins.
#[derive(Clone, Debug, Default)]
pub struct UnionAuthenticator(Vec<Arc<dyn TokenAuthenticator>>);

impl UnionAuthenticator {
    /// Returns a union of authenticators.
    pub fn new(authenticators: Vec<Arc<dyn TokenAuthenticator>>) -> Self {
        Self(authenticators)
    }
}

#[async_trait]
impl TokenAuthenticator for UnionAuthenticator {
    /// Returns all errors together if no authenticator returns a user.
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        let (mut reasons, mut unavailable) = (Vec::new(), None);
        for authenticator in &self.0 {
            match authenticator.authenticate(token, audiences).await {
                Ok(Some(authenticated)) => return Ok(Some(authenticated)),
                Ok(None) => {}
                Err(AuthenticationError::Invalid(why)) => reasons.push(why),
                Err(error) => unavailable = Some(error),
            }
        }
        match unavailable {
            Some(error) => Err(error),
            None if reasons.is_empty() => Ok(None),
            None => {
                let mut seen = BTreeSet::new();
                reasons.retain(|reason| seen.insert(reason.clone()));
                Err(AuthenticationError::Invalid(reasons.join(", ")))
            }
        }
    }
}

/// An authenticator of tokens without audiences: they are good for the API server's own.
#[derive(Debug)]
pub struct AudienceAgnostic<A> {
    authenticator: A,
    audiences: Vec<String>,
}

impl<A: TokenAuthenticator> AudienceAgnostic<A> {
    /// Returns an authenticator whose tokens are for the API server's audiences.
    pub fn new(authenticator: A, audiences: Vec<String>) -> Self {
        Self { authenticator, audiences }
    }
}

#[async_trait]
impl<A: TokenAuthenticator> TokenAuthenticator for AudienceAgnostic<A> {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        let shared = intersection(audiences, &self.audiences);
        if shared.is_empty() && !audiences.is_empty() {
            return Ok(None);
        }
        let authenticated = self.authenticator.authenticate(token, audiences).await?;
        Ok(authenticated.map(|authenticated| Authenticated { audiences: shared, ..authenticated }))
    }
}

/// Returns the members of the first list that are in the second.
pub fn intersection(one: &[String], other: &[String]) -> Vec<String> {
    one.iter().filter(|member| other.contains(member)).cloned().collect()
}

/// Adds the group of authenticated users, unless the authenticator has decided about it.
pub fn with_authenticated_group(mut user: Arc<UserInfo>) -> Arc<UserInfo> {
    let decided = |group: &String| group == ALL_AUTHENTICATED || group == ALL_UNAUTHENTICATED;
    if user.name != UserInfo::anonymous().name && !user.groups.iter().any(decided) {
        Arc::make_mut(&mut user).groups.push(ALL_AUTHENTICATED.to_owned());
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(Result<Option<&'static str>, &'static str>);

    #[async_trait]
    impl TokenAuthenticator for Fixed {
        async fn authenticate(&self, _token: &str, _audiences: &[String]) -> Outcome {
            let user =
                |name: &str| Authenticated::user(UserInfo { name: name.into(), ..UserInfo::default() });
            self.0.map(|name| name.map(user)).map_err(AuthenticationError::invalid)
        }
    }

    #[tokio::test]
    async fn union_returns_the_first_user_or_all_errors() {
        let ask = |answers: Vec<Result<Option<&'static str>, &'static str>>| async move {
            let all =
                answers.into_iter().map(|answer| Arc::new(Fixed(answer)) as Arc<dyn TokenAuthenticator>);
            let outcome = UnionAuthenticator::new(all.collect()).authenticate("t", &[]).await;
            outcome.map(|found| found.map(|found| found.user.name.clone())).map_err(|error| error.to_string())
        };
        assert_eq!(ask(vec![Ok(None), Err("bad"), Ok(Some("ann"))]).await, Ok(Some("ann".to_owned())));
        assert_eq!(ask(vec![Err("a"), Ok(None), Err("b"), Err("a")]).await, Err("a, b".to_owned()));
        assert_eq!(ask(vec![Ok(None)]).await, Ok(None));
    }

    #[tokio::test]
    async fn tokens_without_audiences_are_for_the_api_server() {
        let agnostic = AudienceAgnostic::new(Fixed(Ok(Some("ann"))), vec!["api".to_owned()]);
        let ask = async |audiences: &[&str]| {
            let audiences: Vec<String> = audiences.iter().map(|audience| (*audience).to_owned()).collect();
            agnostic.authenticate("t", &audiences).await.unwrap().map(|found| found.audiences)
        };
        assert_eq!(ask(&["other", "api"]).await, Some(vec!["api".to_owned()]));
        assert_eq!(ask(&["other"]).await, None);
        assert_eq!(ask(&[]).await, Some(Vec::new()));
    }

    #[test]
    fn authenticated_group_is_added_once() {
        let groups = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            let user = UserInfo { name: name.to_owned(), groups, ..UserInfo::default() };
            with_authenticated_group(Arc::new(user)).groups.clone()
        };
        assert_eq!(groups("ann", &["dev"]), ["dev", "system:authenticated"]);
        assert_eq!(groups("ann", &["system:authenticated"]), ["system:authenticated"]);
        assert_eq!(groups("ann", &["system:unauthenticated"]), ["system:unauthenticated"]);
        assert!(groups("system:anonymous", &[]).is_empty());
    }
}
