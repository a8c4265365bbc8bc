//! Extension points: functions, lazy variables, an authorizer, interrupts.

mod table;

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use orlop_cel::{
    AUTHORIZER, AccessAttributes, Activation, Authorizer, Budget, Decision, Env, EvalError, EvalResult,
    Program, RESOURCE_CHECK, ResourceAttributes, ServiceAccount, Type, Value, authorizer_value,
    request_resource_value,
};
use serde_json::json;

#[test]
fn custom_functions() {
    fn double<'a>(args: &[Value<'a>]) -> EvalResult<'a> {
        match args {
            [Value::Int(value)] => Ok(Value::Int(value * 2)),
            _ => Err(EvalError::failed("unreachable: arguments fit the signature")),
        }
    }
    let env = Env::builder()
        .variable("d", Type::Dyn)
        .function("double_it", false, vec![Type::Int], Type::Int, double)
        .function("doubled", true, vec![Type::Int], Type::Int, double)
        .build();
    table::all_true(&env, &["double_it(21) == 42", "21.doubled() == 42"]);
    let strings = json!("a");
    let program = env.compile("double_it(d)").unwrap();
    let failed = program.evaluate(&Activation::new().json("d", &strings), &mut Budget::unlimited());
    assert_eq!(failed.map(|_| ()), Err(EvalError::failed("no such overload: double_it(string)")));
}

#[test]
fn lazy_variables_are_computed_on_reference() {
    let env = Env::builder().variable("cheap", Type::Bool).variable("variables.dear", Type::Int).build();
    let calls = Cell::new(0);
    let dear = || {
        calls.set(calls.get() + 1);
        Ok(Value::Int(7))
    };
    let program = env.compile("cheap || variables.dear == 7").unwrap();
    let run = |cheap: bool| {
        let activation = Activation::new().value("cheap", Value::Bool(cheap)).lazy("variables.dear", &dear);
        program.evaluate(&activation, &mut Budget::unlimited()).map(|value| value.as_bool())
    };
    assert_eq!(run(true), Ok(Some(true)));
    assert_eq!(calls.get(), 0);
    assert_eq!(run(false), Ok(Some(true)));
    assert_eq!(calls.get(), 1);
}

#[derive(Default)]
struct Recorder {
    asked: Mutex<Vec<(Option<ServiceAccount>, AccessAttributes)>>,
}

impl Authorizer for Recorder {
    fn authorize(
        &self,
        subject: Option<&ServiceAccount>,
        attributes: &AccessAttributes,
    ) -> Result<Decision, EvalError> {
        if let Ok(mut asked) = self.asked.lock() {
            asked.push((subject.cloned(), attributes.clone()));
        }
        Ok(match attributes {
            AccessAttributes::NonResource { path, .. } => {
                Decision { allowed: path == "/healthz", ..Decision::default() }
            }
            AccessAttributes::Resource { resource, verb } if resource.resource == "broken" => {
                Decision { allowed: false, reason: String::new(), error: Some(format!("cannot {verb}")) }
            }
            AccessAttributes::Resource { resource, verb } => Decision {
                allowed: verb == "get",
                reason: format!("asked for {}", resource.name),
                error: None,
            },
        })
    }
}

#[test]
fn authorization_checks_call_the_authorizer() {
    let env = Env::kubernetes(34)
        .variable("authorizer", AUTHORIZER)
        .variable("authorizer.requestResource", RESOURCE_CHECK)
        .build();
    let recorder = Arc::new(Recorder::default());
    let request = ResourceAttributes { resource: "pods".into(), name: "p".into(), ..Default::default() };
    let activation = Activation::new()
        .value("authorizer", authorizer_value(recorder.clone()))
        .value("authorizer.requestResource", request_resource_value(recorder.clone(), request));
    for expression in [
        "authorizer.path('/healthz').check('get').allowed()",
        "!authorizer.path('/other').check('get').allowed()",
        "authorizer.group('apps').resource('deployments').namespace('n').name('d').check('get').reason() == 'asked for d'",
        "authorizer.requestResource.check('get').reason() == 'asked for p'",
        "!authorizer.requestResource.subresource('log').check('update').allowed()",
        "authorizer.group('').resource('broken').check('list').errored()",
        "authorizer.group('').resource('broken').check('list').error() == 'cannot list'",
        "authorizer.group('').resource('pods').check('get').error() == ''",
        "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').fieldSelector('a=b').labelSelector('c').check('get').allowed()",
    ] {
        let program = env.compile(expression).unwrap();
        let value = program.evaluate(&activation, &mut Budget::unlimited());
        assert_eq!(value.map(|value| value.as_bool()), Ok(Some(true)), "{expression}");
    }
    let asked = recorder.asked.lock().unwrap();
    let (subject, attributes) = asked.last().unwrap();
    assert_eq!(*subject, Some(ServiceAccount { namespace: "ns".into(), name: "sa".into() }));
    let resource = ResourceAttributes {
        resource: "pods".into(),
        field_selector: "a=b".into(),
        label_selector: "c".into(),
        ..Default::default()
    };
    assert_eq!(*attributes, AccessAttributes::Resource { resource, verb: "get".into() });
    for (expression, message) in [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        (
            "authorizer.serviceAccount('ns', 'A').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('a.b', 'a').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
    ] {
        let program = env.compile(expression).unwrap();
        let value = program.evaluate(&activation, &mut Budget::unlimited());
        assert_eq!(value.map(|_| ()), Err(EvalError::failed(message)), "{expression}");
    }
}

#[test]
fn comprehensions_can_be_interrupted() {
    let env = Env::kubernetes(34).build();
    let program = env.compile("lists.range(100000).all(i, i >= 0)").unwrap();
    let looks = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    let mut budget = Budget::unlimited().with_interrupt(&stop);
    let activation = Activation::new();
    let result = program.evaluate(&activation, &mut budget);
    assert_eq!(result.map(|_| ()), Err(EvalError::Interrupted));
    assert_eq!(looks.get(), 4, "one look every hundred iterations");
}

#[test]
fn programs_are_shared_between_threads() {
    fn is_shareable<T: Send + Sync + Clone>() {}
    is_shareable::<Program>();
    is_shareable::<Env>();
    let program = Env::kubernetes(34).variable("x", Type::Int).build().compile("x * 2").unwrap();
    let results: Vec<i64> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..4)
            .map(|x| {
                let program = program.clone();
                scope.spawn(move || {
                    let activation = Activation::new().value("x", Value::Int(x));
                    match program.evaluate(&activation, &mut Budget::unlimited()) {
                        Ok(Value::Int(value)) => value,
                        other => panic!("{other:?}"),
                    }
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert_eq!(results, [0, 2, 4, 6]);
}

#[test]
fn extending_an_environment_does_not_change_it() {
    let base = Env::kubernetes(34).variable("x", Type::Int).build();
    let extended = base.extend().variable("x", Type::String).variable("y", Type::Int).build();
    assert!(base.compile("x + 1 == 2").is_ok() && base.compile("y == 1").is_err());
    assert!(extended.compile("x + 'a' == 'b' && y == 1").is_ok());
}
