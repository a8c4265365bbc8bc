//! Authorization checks inside expressions.
//!
//! An expression builds a question step by step and `check(verb)` asks it. Who answers is the caller's business: an
//! [`Authorizer`] is bound to the variable `authorizer` with [`authorizer_value`]. Expressions are evaluated
//! synchronously, so the answer must be at hand.

use std::fmt;
use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::{CallContext, Functions, Outcome};
use crate::library::named_format;
use crate::library::opaque::{DECISION, GROUP_CHECK, Opaque, PATH_CHECK};
use crate::types::Type;
use crate::value::Value;

/// The type to declare the variable `authorizer` with.
pub const AUTHORIZER: Type = Type::Opaque("kubernetes.authorization.Authorizer");
/// The type to declare the variable `authorizer.requestResource` with.
pub const RESOURCE_CHECK: Type = Type::Opaque("kubernetes.authorization.ResourceCheck");

/// Answers authorization questions of expressions.
pub trait Authorizer: Send + Sync {
    /// Whether the request's user, or `subject` if there is one, may do this.
    fn authorize(&self, subject: Option<&ServiceAccount>, question: &Question) -> Decision;
}

/// A service account to ask for instead of the request's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What is to be authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A request for a path outside the resources.
    Path {
        /// The path.
        path: String,
        /// The HTTP verb, in lower case.
        verb: String,
    },
    /// A request for a resource.
    Resource {
        /// What is asked for.
        resource: ResourceQuestion,
        /// The API verb.
        verb: String,
    },
}

/// A resource, as far as the expression named it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuestion {
    /// API group
    pub group: String,
    /// Resource, such as `pods`
    pub resource: String,
    /// Subresource, such as `status`
    pub subresource: String,
    /// Namespace
    pub namespace: String,
    /// Name of the object
    pub name: String,
    /// Field selector as text
    pub field_selector: String,
    /// Label selector as text
    pub label_selector: String,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, for people.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// The value of `authorizer`: who answers, and for whom.
pub struct Authorization {
    authorizer: Arc<dyn Authorizer>,
    subject: Option<ServiceAccount>,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorization").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// A question about a path, still without a verb.
#[derive(Debug)]
pub struct PathCheck {
    authorization: Arc<Authorization>,
    path: String,
}

/// A question about an API group, still without a resource.
#[derive(Debug)]
pub struct GroupCheck {
    authorization: Arc<Authorization>,
    group: String,
}

/// A question about a resource, still without a verb.
#[derive(Debug)]
pub struct ResourceCheck {
    authorization: Arc<Authorization>,
    resource: ResourceQuestion,
}

/// The value to bind `authorizer` to.
pub fn authorizer_value<'a>(authorizer: Arc<dyn Authorizer>) -> Value<'a> {
    Value::Opaque(Opaque::Authorizer(Arc::new(Authorization { authorizer, subject: None })))
}

/// The value to bind `authorizer.requestResource` to: a check that already names the request's resource.
pub fn request_resource_value<'a>(authorizer: Arc<dyn Authorizer>, resource: ResourceQuestion) -> Value<'a> {
    let authorization = Arc::new(Authorization { authorizer, subject: None });
    Value::Opaque(Opaque::ResourceCheck(Arc::new(ResourceCheck { authorization, resource })))
}

pub(crate) fn declare(f: &mut Functions) {
    let text = || Type::String;
    f.member("path", "authorizer_path", [AUTHORIZER, text()], PATH_CHECK, path);
    f.member("group", "authorizer_group", [AUTHORIZER, text()], GROUP_CHECK, group);
    let account = [AUTHORIZER, text(), text()];
    f.member("serviceAccount", "authorizer_serviceaccount", account, AUTHORIZER, service_account);
    f.member("resource", "groupcheck_resource", [GROUP_CHECK, text()], RESOURCE_CHECK, resource);
    f.member(
        "subresource",
        "resourcecheck_subresource",
        [RESOURCE_CHECK, text()],
        RESOURCE_CHECK,
        |_, args| refine(args, |question, text| question.subresource = text),
    );
    f.member("namespace", "resourcecheck_namespace", [RESOURCE_CHECK, text()], RESOURCE_CHECK, |_, args| {
        refine(args, |question, text| question.namespace = text)
    });
    f.member("name", "resourcecheck_name", [RESOURCE_CHECK, text()], RESOURCE_CHECK, |_, args| {
        refine(args, |question, text| question.name = text)
    });
    f.member("check", "pathcheck_check", [PATH_CHECK, text()], DECISION, check);
    f.member("check", "resourcecheck_check", [RESOURCE_CHECK, text()], DECISION, check);
    f.member("allowed", "decision_allowed", [DECISION], Type::Bool, |_, args| {
        decision(args, |decision| Value::Bool(decision.allowed))
    });
    f.member("reason", "decision_reason", [DECISION], text(), |_, args| {
        decision(args, |decision| Value::string(&decision.reason))
    });
    f.member("errored", "decision_errored", [DECISION], Type::Bool, |_, args| {
        decision(args, |decision| Value::Bool(decision.error.is_some()))
    });
    f.member("error", "decision_error", [DECISION], text(), |_, args| {
        decision(args, |decision| Value::string(decision.error.as_deref().unwrap_or_default()))
    });
}

pub(crate) fn declare_selectors(f: &mut Functions) {
    let with_text = || [RESOURCE_CHECK, Type::String];
    f.member("fieldSelector", "authorizer_fieldselector", with_text(), RESOURCE_CHECK, |_, args| {
        refine(args, |question, text| question.field_selector = text)
    });
    f.member("labelSelector", "authorizer_labelselector", with_text(), RESOURCE_CHECK, |_, args| {
        refine(args, |question, text| question.label_selector = text)
    });
}

fn path<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Opaque(Opaque::Authorizer(authorization)), Value::String(path)] = args else {
        return Err(EvalError::no_such_overload());
    };
    if path.trim().is_empty() {
        return Err(EvalError::failed("path must not be empty"));
    }
    let check = PathCheck { authorization: authorization.clone(), path: path.to_string() };
    Ok(Value::Opaque(Opaque::PathCheck(Arc::new(check))))
}

fn group<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Opaque(Opaque::Authorizer(authorization)), Value::String(group)] = args else {
        return Err(EvalError::no_such_overload());
    };
    let check = GroupCheck { authorization: authorization.clone(), group: group.to_string() };
    Ok(Value::Opaque(Opaque::GroupCheck(Arc::new(check))))
}

fn service_account<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Opaque(Opaque::Authorizer(authorization)), Value::String(namespace), Value::String(name)] =
        args
    else {
        return Err(EvalError::no_such_overload());
    };
    if !named_format::is_subdomain(name) {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !named_format::is_label(namespace) {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let subject = Some(ServiceAccount { namespace: namespace.to_string(), name: name.to_string() });
    let authorization = Authorization { authorizer: authorization.authorizer.clone(), subject };
    Ok(Value::Opaque(Opaque::Authorizer(Arc::new(authorization))))
}

fn resource<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Opaque(Opaque::GroupCheck(check)), Value::String(resource)] = args else {
        return Err(EvalError::no_such_overload());
    };
    if resource.trim().is_empty() {
        return Err(EvalError::failed("resource must not be empty"));
    }
    let question =
        ResourceQuestion { group: check.group.clone(), resource: resource.to_string(), ..Default::default() };
    Ok(resource_check(&check.authorization, question))
}

fn resource_check<'a>(authorization: &Arc<Authorization>, resource: ResourceQuestion) -> Value<'a> {
    let check = ResourceCheck { authorization: authorization.clone(), resource };
    Value::Opaque(Opaque::ResourceCheck(Arc::new(check)))
}

fn refine<'a>(args: &[Value<'a>], set: fn(&mut ResourceQuestion, String)) -> Outcome<'a> {
    let [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(text)] = args else {
        return Err(EvalError::no_such_overload());
    };
    let mut question = check.resource.clone();
    set(&mut question, text.to_string());
    Ok(resource_check(&check.authorization, question))
}

fn check<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (authorization, question) = match args {
        [Value::Opaque(Opaque::PathCheck(check)), Value::String(verb)] => {
            (&check.authorization, Question::Path { path: check.path.clone(), verb: verb.to_string() })
        }
        [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(verb)] => {
            let resource = check.resource.clone();
            (&check.authorization, Question::Resource { resource, verb: verb.to_string() })
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let decision = authorization.authorizer.authorize(authorization.subject.as_ref(), &question);
    Ok(Value::Opaque(Opaque::Decision(Arc::new(decision))))
}

fn decision<'a>(args: &[Value<'a>], read: fn(&Decision) -> Value<'a>) -> Outcome<'a> {
    match args {
        [Value::Opaque(Opaque::Decision(decision))] => Ok(read(decision)),
        _ => Err(EvalError::no_such_overload()),
    }
}
