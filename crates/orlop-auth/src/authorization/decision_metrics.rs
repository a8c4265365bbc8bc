//! Counts of the decisions of each authorizer, under Kubernetes' name.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{FutureExt, future::Either};
use orlop_api::user::UserInfo;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::{
    authorizer::{Authorizer, Authorizing, Decision, Evaluation, Rules, decided, deciding},
    request::Attributes,
};

type Labels = Vec<(&'static str, String)>;

/// Counts of decisions. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct DecisionMetrics(Family<Labels, Counter>);

impl DecisionMetrics {
    /// Returns an authorizer whose decisions are counted. Authorizers of the same type and name share a count.
    pub fn count(&self, kind: &str, name: &str, authorizer: Arc<dyn Authorizer>) -> Arc<dyn Authorizer> {
        let counter = |decision: &str| {
            let labels =
                vec![("type", kind.to_owned()), ("name", name.to_owned()), ("decision", decision.to_owned())];
            self.0.get_or_create(&labels).clone()
        };
        Arc::new(Counted { authorizer, allowed: counter("allowed"), denied: counter("denied") })
    }

    /// Registers the counts.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_authorization_decisions",
            "Decisions of authorizers that allow or deny, by type and name of the authorizer",
            self.0.clone(),
        );
    }
}

#[derive(Debug)]
struct Counted {
    authorizer: Arc<dyn Authorizer>,
    allowed: Counter,
    denied: Counter,
}

impl Counted {
    fn count(&self, evaluation: Evaluation) -> Evaluation {
        match &evaluation.decision {
            Decision::Allow(_) => drop(self.allowed.inc()),
            Decision::Deny(_) => drop(self.denied.inc()),
            // Another authorizer decides.
            Decision::NoOpinion(_) => {}
        }
        evaluation
    }
}

#[async_trait]
impl Authorizer for Counted {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
        match self.authorizer.authorize(attributes) {
            Either::Left(made) => decided(self.count(made.into_inner())),
            Either::Right(made) => deciding(made.map(|made| self.count(made))),
        }
    }

    async fn rules(&self, user: &UserInfo, namespace: &str) -> Rules {
        self.authorizer.rules(user, namespace).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorizer::{AlwaysAllow, AlwaysDeny};

    #[tokio::test]
    async fn decisions_are_counted_by_authorizer() {
        let metrics = DecisionMetrics::default();
        let allow = metrics.count("AlwaysAllow", "all", Arc::new(AlwaysAllow));
        let deny = metrics.count("AlwaysDeny", "none", Arc::new(AlwaysDeny));
        for authorizer in [&allow, &allow, &deny] {
            authorizer.authorize(&Attributes::default()).await;
        }
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = r#"decisions_total{type="AlwaysAllow",name="all",decision="allowed"} 2"#;
        assert!(text.contains(line), "{text}");
        let line = r#"decisions_total{type="AlwaysDeny",name="none",decision="denied"} 0"#;
        assert!(text.contains(line), "no opinion is not counted: {text}");
    }
}
