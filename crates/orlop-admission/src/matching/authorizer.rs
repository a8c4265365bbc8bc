//! Authorization checks of expressions.
//!
//! CEL evaluates without waiting, and an authorizer may have to wait: for a webhook, for one. So a check that has no
//! decision yet is noted and interrupts the evaluation. The caller asks for the decision and evaluates again, until
//! none is lacking; only then the result counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_api::user::UserInfo;
use orlop_auth::{
    Decision, UnionAuthorizer,
    request::{Attributes, Selectors, Subresource, Verb},
};
use orlop_cel::{AccessAttributes, EvalError, ServiceAccount};

/// Checks of one request's expressions beyond which none is decided any more. The cost limits allow fewer.
const CHECKS_MAX: usize = 256;

/// The checks of one request's expressions, and their decisions.
#[derive(Debug)]
pub struct AuthorizerChecks {
    user: Arc<UserInfo>,
    checks: Mutex<Vec<Check>>,
}

#[derive(Debug)]
struct Check {
    subject: Option<ServiceAccount>,
    attributes: AccessAttributes,
    decision: Option<orlop_cel::Decision>,
}

impl AuthorizerChecks {
    /// Returns the checks of a user's request.
    pub fn new(user: Arc<UserInfo>) -> Self {
        Self { user, checks: Mutex::default() }
    }

    fn checks(&self) -> MutexGuard<'_, Vec<Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the decisions that an evaluation lacked. Returns false if it lacked none: then its result counts.
    pub async fn resolve(&self, authorizer: &UnionAuthorizer) -> bool {
        let lacking: Vec<(usize, Attributes)> = {
            let checks = self.checks();
            let undecided = checks.iter().enumerate().filter(|(_, check)| check.decision.is_none());
            undecided.map(|(index, check)| (index, self.attributes(check))).collect()
        };
        for (index, attributes) in &lacking {
            let evaluation = authorizer.evaluate(attributes).await;
            let error = evaluation.error();
            let (allowed, reason) = match evaluation.decision {
                Decision::Allow(reason) => (true, reason),
                Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason),
            };
            let decision = orlop_cel::Decision { allowed, reason: reason.into_owned(), error };
            if let Some(check) = self.checks().get_mut(*index) {
                check.decision = Some(decision);
            }
        }
        !lacking.is_empty()
    }

    fn attributes(&self, check: &Check) -> Attributes {
        let user = match &check.subject {
            Some(account) => Arc::new(UserInfo::service_account(&account.namespace, &account.name)),
            None => self.user.clone(),
        };
        match &check.attributes {
            AccessAttributes::NonResource { path, verb } => Attributes {
                user,
                verb: Verb::from(verb.as_str()),
                path: path.clone(),
                ..Attributes::default()
            },
            AccessAttributes::Resource { resource, verb } => {
                let selects = !resource.field_selector.is_empty() || !resource.label_selector.is_empty();
                Attributes {
                    user,
                    verb: Verb::from(verb.as_str()),
                    is_resource_request: true,
                    group: resource.group.clone(),
                    version: "*".to_owned(),
                    resource: resource.resource.clone(),
                    subresource: (!resource.subresource.is_empty())
                        .then(|| Subresource::from(resource.subresource.as_str())),
                    namespace: resource.namespace.clone(),
                    name: resource.name.clone(),
                    selectors: selects.then(|| {
                        Box::new(Selectors::parse(&resource.field_selector, &resource.label_selector))
                    }),
                    ..Attributes::default()
                }
            }
        }
    }
}

impl orlop_cel::Authorizer for AuthorizerChecks {
    fn authorize(
        &self,
        subject: Option<&ServiceAccount>,
        attributes: &AccessAttributes,
    ) -> Result<orlop_cel::Decision, EvalError> {
        let mut checks = self.checks();
        let known =
            checks.iter().find(|check| check.subject.as_ref() == subject && check.attributes == *attributes);
        if let Some(check) = known {
            return check.decision.clone().ok_or(EvalError::Interrupted);
        }
        if checks.len() >= CHECKS_MAX {
            return Err(EvalError::failed("too many authorization checks"));
        }
        let (subject, attributes) = (subject.cloned(), attributes.clone());
        checks.push(Check { subject, attributes, decision: None });
        Err(EvalError::Interrupted)
    }
}
