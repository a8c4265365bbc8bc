//! Nothing an expression or a document holds may panic, hang or exhaust the stack.

mod table;

use orlop_cel::{Activation, Budget, DEPTH_MAX, Env, EvalError, Schema, Type};
use proptest::prelude::*;
use serde_json::json;
use table::everything;

fn first_message(env: &Env, expression: &str) -> String {
    env.compile(expression)
        .map_or_else(|errors| errors.issues()[0].message.clone(), |_| "compiles".to_owned())
}

/// Runs a test with less stack than any thread of a server has.
fn on_a_small_stack(test: fn()) {
    std::thread::Builder::new()
        .stack_size(1536 * 1024)
        .spawn(test)
        .expect("a thread")
        .join()
        .expect("no panic");
}

#[test]
fn expressions_beyond_depth_limit_are_refused() {
    on_a_small_stack(refuse_deep_expressions);
}

fn refuse_deep_expressions() {
    let env = everything();
    let depth = 49_999;
    let bombs = [
        format!("{}1{}", "(".repeat(depth), ")".repeat(depth)),
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
        format!("{}1{}", "{1:".repeat(depth / 2), "}".repeat(depth / 2)),
        format!("d{}", ".a".repeat(depth - 1)),
        format!("d{}", "[0]".repeat(depth / 2)),
        format!("d{}", ".size()".repeat(depth / 8)),
        format!("1{}", "+1".repeat(depth - 1)),
        format!("1{}", "==1".repeat(depth / 2)),
        format!("{}1", "true?1:".repeat(depth / 8)),
        format!("{}true{}", "[1].all(x,".repeat(depth / 12), ")".repeat(depth / 12)),
        format!("{}1{}", "f(".repeat(depth / 4), ")".repeat(depth / 4)),
    ];
    for bomb in bombs {
        assert_eq!(first_message(&env, &bomb), "max recursion depth exceeded", "{}…", &bomb[..20]);
    }
    let shown = env.compile(&"(".repeat(1000)).map(|_| ()).map_err(|errors| errors.to_string());
    assert_eq!(shown, Err("ERROR: <input>:-1:0: max recursion depth exceeded".to_owned()));
}

#[test]
fn expressions_at_depth_limit_evaluate() {
    on_a_small_stack(evaluate_the_deepest);
}

fn evaluate_the_deepest() {
    let env = everything();
    let depth = DEPTH_MAX as usize - 1;
    for expression in [
        format!("{}1{} == 1", "(".repeat(depth - 1), ")".repeat(depth - 1)),
        format!("{}1{} != []", "[".repeat(depth / 2), "]".repeat(depth / 2))
            .replace("!= []", "== dyn(1) || true"),
        format!("0{} == {}", " + 1".repeat(depth - 2), depth - 2),
        format!("{}true{}", "[1].all(x, ".repeat(depth / 2), ")".repeat(depth / 2)),
        format!("{}true", "false ? false : ".repeat(depth - 1)),
    ] {
        assert_eq!(table::outcome(&env, &expression), "true", "{}…", &expression[..30]);
    }
}

#[test]
fn wide_expressions_evaluate() {
    let env = everything();
    table::all_true(
        &env,
        &[
            &vec!["true"; 5_000].join(" && "),
            &vec!["false"; 5_000].iter().chain([&"true"]).copied().collect::<Vec<_>>().join(" || "),
            &format!("[{}].size() == 5000", vec!["1"; 5_000].join(",")),
            &format!("{}true", "!!".repeat(10_000)),
            &format!("{}1 == 1", "--".repeat(10_000)),
        ],
    );
}

#[test]
fn long_expressions_are_refused() {
    let message = first_message(&everything(), &"1".repeat(100_001));
    assert_eq!(message, "expression code point size exceeds limit: size: 100001, limit 100000");
}

#[test]
fn optional_chains_are_linear() {
    // In an implementation that copies the target, each link doubles the work; forty would never end.
    let env = everything();
    let chain = format!("optional.of(1){}.hasValue()", ".optMap(v, v + 1)".repeat(40));
    assert_eq!(table::outcome(&env, &chain), "true");
}

#[test]
fn iteration_is_bounded_by_the_budget() {
    let env = Env::kubernetes(34).variable("items", Type::list(Type::Int)).build();
    let items = json!((0..1000).collect::<Vec<i64>>());
    let program = env.compile("items.all(a, items.all(b, items.all(c, a + b + c >= 0)))").unwrap();
    let mut budget = Budget::new(1_000_000);
    let result = program.evaluate(&Activation::new().json("items", &items), &mut budget);
    assert_eq!(result.map(|_| ()), Err(EvalError::CostLimitExceeded));
}

#[test]
fn allocation_is_limited() {
    // Each of these doubles something for the price of a few units; none may fill the memory.
    let env = everything();
    let memory = "operation cancelled: actual cost limit exceeded";
    let many = |start: &str, step: &str| format!("{start}{}.size() == 1", step.repeat(60));
    for (expression, message) in [
        (many("[[1]]", ".map(a, a + a)"), memory),
        (many("['x']", ".map(a, a + a)"), memory),
        (many("['x']", ".map(a, '%s%s'.format([a, a]))"), "format: result exceeds 8388608 bytes"),
        (many("['x']", ".map(a, [a, a].join())"), "join: result exceeds 8388608 bytes"),
        (many("['xx']", ".map(a, a.replace('', a))"), "replace: result exceeds 8388608 bytes"),
        (many("[[1]]", ".map(a, [a, a].flatten())"), "flatten: result exceeds 1000000 elements"),
        (
            many("[['x']]", ".map(a, ['%s'.format([[a, a]])])"),
            "error during formatting: format: result exceeds 8388608 bytes",
        ),
    ] {
        let program = env.compile(&expression).unwrap();
        let activation = Activation::new();
        let result = program.evaluate(&activation, &mut Budget::unlimited());
        assert_eq!(
            result.map(|_| ()).map_err(|error| error.to_string()),
            Err(message.to_owned()),
            "{}…",
            &expression[..40]
        );
    }
}

#[test]
fn sets_compare_in_linear_time() {
    let items: Vec<String> = (0..30_000).map(|n| format!("item-{n}")).collect();
    let mut reversed = items.clone();
    reversed.reverse();
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let schema = Schema::from_openapi("Names", &set, false).expect("a visible schema");
    let env = Env::kubernetes(34).schema("a", &schema).schema("b", &schema).build();
    let (a, b) = (json!(items), json!(reversed));
    let activation = Activation::new().json("a", &a).json("b", &b);
    let expressions = [
        "a == b",
        "(a + b).size() == 30000",
        "sets.equivalent(a, b)",
        "sets.contains(a, b)",
        "sets.intersects(a, b)",
        "a.distinct().size() == 30000",
    ];
    let start = std::time::Instant::now();
    let programs: Vec<_> = expressions.iter().map(|expression| env.compile(expression).unwrap()).collect();
    for (program, expression) in programs.iter().zip(expressions) {
        let value = program.evaluate(&activation, &mut Budget::unlimited());
        assert_eq!(value.map(|value| value.as_bool()), Ok(Some(true)), "{expression}");
    }
    // Comparing each with each would take a thousand million steps an expression.
    assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
}

#[test]
fn deep_documents_compare() {
    let env = Env::builder().variable("d", Type::Dyn).build();
    let mut document = json!(1);
    for _ in 0..120 {
        document = json!([document]);
    }
    let program = env.compile("d == d").unwrap();
    let value = program.evaluate(&Activation::new().json("d", &document), &mut Budget::unlimited());
    assert_eq!(value.map(|value| value.as_bool()), Ok(Some(true)));
}

/// Text that looks like CEL often enough to get past the lexer.
fn cel_like() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "1",
        "2u",
        "1.5",
        "'a'",
        "b'x'",
        "true",
        "null",
        "x",
        "d",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        ".",
        ",",
        ":",
        "?",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "==",
        "!=",
        "<",
        ">=",
        "&&",
        "||",
        " in ",
        ".a",
        ".?a",
        "[?0]",
        ".size()",
        ".all(i, ",
        ".map(i, ",
        ".exists(i, v, ",
        "has(",
        "optional.of(",
        ".optMap(v, ",
        "cel.bind(b, ",
        "Object{",
        "a: ",
        "string(",
        "timestamp('2020-01-01T00:00:00Z')",
        "duration('1h')",
        ".format([",
        ".matches('a+')",
        "i",
        "v",
        "b",
        "quantity('1')",
        ".sortBy(i, ",
        "math.least(",
        "dyn(",
        "é",
        "\\",
        "\n",
        "//",
        "'",
    ]);
    prop::collection::vec(pieces, 0..25).prop_map(|pieces| pieces.concat())
}

/// An expression that parses, built from the grammar.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|value| value.to_string()),
        any::<u64>().prop_map(|value| format!("{value}u")),
        (-1e9..1e9_f64).prop_map(|value| format!("{value:.3}")),
        "[a-zé\"\\\\]{0,4}"
            .prop_map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))),
        prop::sample::select(vec!["true", "false", "null", "x", "d", "b'\\xff'", "[]", "{}", "0", "1", "''"])
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 64, 4, |inner| {
        let binary = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
        ]);
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[?{b}].orValue({b})")),
            inner.clone().prop_map(|a| format!("dyn({a}).field")),
            inner.clone().prop_map(|a| format!("has(dyn({a}).field)")),
            inner.clone().prop_map(|a| format!("dyn({a}).?field.optMap(o, o)")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a}).all(i, {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a}).map(i, [i, {b}])")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a}).filter(i, {b} == i)")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a}).transformMap(k, v, {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("cel.bind(bound, {a}, [bound, {b}])")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a}).sortBy(i, {b})")),
            inner.clone().prop_map(|a| format!("string(dyn({a}))")),
            inner.clone().prop_map(|a| format!("size(dyn({a}))")),
            inner.clone().prop_map(|a| format!("dyn({a}).substring(1).charAt(0)")),
            inner.clone().prop_map(|a| format!("'%s'.format([{a}])")),
            inner.clone().prop_map(|a| format!("Object{{f: {a}}}.f")),
            inner.prop_map(|a| format!("type({a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiler_never_panics(text in "\\PC{0,80}") {
        let _ = everything_once().compile(&text).map_err(|errors| errors.to_string());
    }

    #[test]
    fn evaluator_never_panics(text in cel_like()) {
        evaluate(&text);
    }

    #[test]
    fn well_formed_expressions_never_panic(text in expression()) {
        evaluate(&text);
    }

    #[test]
    fn unparsed_text_parses_to_the_same_ast(text in expression()) {
        let env = everything_once();
        let printed = env.format(&text).map_err(|errors| TestCaseError::fail(format!("{text}: {errors}")))?;
        let again = env.format(&printed).map_err(|errors| TestCaseError::fail(format!("{printed}: {errors}")))?;
        prop_assert_eq!(&printed, &again);
        // The printed form means the same, too.
        prop_assert_eq!(shown(&text), shown(&printed), "{} and {}", text, printed);
    }

    #[test]
    fn escaped_names_come_back(name in "[a-z_./-]{1,12}") {
        let identifier = orlop_cel::escape(&name);
        prop_assert_eq!(identifier.as_deref().and_then(orlop_cel::unescape), Some(name));
    }
}

fn everything_once() -> &'static Env {
    static ENV: std::sync::OnceLock<Env> = std::sync::OnceLock::new();
    ENV.get_or_init(everything)
}

fn evaluate(text: &str) {
    let Ok(program) = everything_once().compile(text) else { return };
    let document = json!({"a": [1, "b", {"c": null}], "field": 1.5});
    let activation = Activation::new().json("x", &document["a"][0]).json("d", &document);
    let mut budget = Budget::new(100_000);
    if let Ok(value) = program.evaluate(&activation, &mut budget) {
        let _ = value.to_json();
        let _ = format!("{value}");
    }
}

fn shown(text: &str) -> String {
    match everything_once().compile(text) {
        Ok(program) => {
            let document = json!({"field": 1});
            let activation = Activation::new().json("x", &document["field"]).json("d", &document);
            let result = program.evaluate(&activation, &mut Budget::new(100_000));
            format!("{:?} {result:?}", program.result_type())
        }
        Err(errors) => {
            format!("{:?}", errors.issues().iter().map(|issue| &issue.message).collect::<Vec<_>>())
        }
    }
}
