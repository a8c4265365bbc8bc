//! Random histories against a naive model: a list of documents and a filter that decodes everything.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use proptest::prelude::*;
use slate::{Engine, Filter, IndexSpec, Query, Update};
use support::on_every_store;

/// The model's filters, kept to what it can evaluate in a few lines.
#[derive(Debug, Clone)]
enum Condition {
    Equal(&'static str, Option<i32>),
    Range(&'static str, i32, i32),
    In(&'static str, Vec<i32>),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

impl Condition {
    fn to_filter(&self) -> Document {
        match self {
            Self::Equal(path, value) => doc! { *path: value.map_or(Bson::Null, Bson::Int32) },
            Self::Range(path, low, high) => doc! { *path: { "$gte": low, "$lt": high } },
            Self::In(path, values) => doc! { *path: { "$in": values.clone() } },
            Self::Not(inner) => doc! { "$nor": [inner.to_filter()] },
            Self::And(parts) => doc! { "$and": parts.iter().map(Self::to_filter).collect::<Vec<_>>() },
            Self::Or(parts) => doc! { "$or": parts.iter().map(Self::to_filter).collect::<Vec<_>>() },
        }
    }

    fn holds(&self, document: &Document) -> bool {
        // Every value of the field: an array's elements, or the value, or nothing.
        let values = |path: &str| -> Vec<Option<i32>> {
            match document.get(path) {
                None | Some(Bson::Null) => vec![None],
                Some(Bson::Array(list)) => list.iter().map(Bson::as_i32).collect(),
                Some(value) => vec![value.as_i32()],
            }
        };
        match self {
            Self::Equal(path, expected) => values(path).contains(expected),
            Self::Range(path, low, high) => {
                let values = values(path);
                values.iter().flatten().any(|value| value >= low)
                    && values.iter().flatten().any(|value| value < high)
            }
            Self::In(path, expected) => values(path).iter().flatten().any(|value| expected.contains(value)),
            Self::Not(inner) => !inner.holds(document),
            Self::And(parts) => parts.iter().all(|part| part.holds(document)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(document)),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(i32, Document),
    Set(Condition, i32),
    Push(Condition, i32),
    Delete(Condition),
    Index(Vec<&'static str>),
    DropIndex,
    Find(Condition, Option<(&'static str, i32)>, Option<usize>),
}

const PATHS: [&str; 3] = ["a", "b", "c"];

fn path() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&PATHS[..])
}

fn condition() -> impl Strategy<Value = Condition> {
    let leaf = prop_oneof![
        (path(), proptest::option::of(0..6)).prop_map(|(path, value)| Condition::Equal(path, value)),
        (path(), 0..6, 0..6).prop_map(|(path, low, high)| Condition::Range(path, low, high)),
        (path(), proptest::collection::vec(0..6, 0..4))
            .prop_map(|(path, values)| Condition::In(path, values)),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Condition::Not(Box::new(inner))),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Condition::And),
            proptest::collection::vec(inner, 1..4).prop_map(Condition::Or),
        ]
    })
}

fn document() -> impl Strategy<Value = Document> {
    let field = prop_oneof![
        4 => (0..6).prop_map(Bson::Int32),
        1 => Just(Bson::Null),
        1 => proptest::collection::vec((0..6).prop_map(Bson::Int32), 0..3).prop_map(Bson::Array),
    ];
    proptest::collection::vec((path(), field), 0..4).prop_map(|fields| {
        let mut document = Document::new();
        let mut array = false;
        for (path, value) in fields {
            // A compound index refuses two arrays.
            if matches!(value, Bson::Array(_)) && std::mem::replace(&mut array, true) {
                continue;
            }
            document.insert(path, value);
        }
        document
    })
}

fn step() -> impl Strategy<Value = Step> {
    let index = proptest::sample::select(vec![
        vec!["a"],
        vec!["b"],
        vec!["-c"],
        vec!["a", "-b"],
        vec!["-b", "c"],
        vec!["c", "a", "b"],
    ]);
    let sort = proptest::option::of((path(), proptest::sample::select(vec![1, -1])));
    prop_oneof![
        6 => (0..30, document()).prop_map(|(id, document)| Step::Insert(id, document)),
        2 => (condition(), 0..6).prop_map(|(condition, value)| Step::Set(condition, value)),
        1 => (condition(), 0..6).prop_map(|(condition, value)| Step::Push(condition, value)),
        1 => condition().prop_map(Step::Delete),
        2 => index.prop_map(Step::Index),
        1 => Just(Step::DropIndex),
        6 => (condition(), sort, proptest::option::of(0_usize..8))
            .prop_map(|(condition, sort, limit)| Step::Find(condition, sort, limit)),
    ]
}

type Model = BTreeMap<i32, Document>;

fn run(engine: &Engine, model: &mut Model, step: &Step) {
    match step {
        Step::Insert(id, fields) => {
            let mut document = doc! { "_id": id };
            document.extend(fields.clone());
            let inserted = engine.insert("c", &document).is_ok();
            assert_eq!(inserted, !model.contains_key(id));
            model.entry(*id).or_insert(document);
        }
        Step::Set(condition, value) => {
            modify(engine, model, condition, doc! { "$set": { "b": value } }, |document| {
                document.insert("b", *value);
            });
        }
        Step::Push(condition, value) => {
            // Only where `c` is an array or missing, and nothing else is an array.
            let plain = |document: &Document| {
                matches!(document.get("c"), None | Some(Bson::Array(_)))
                    && !PATHS[..2].iter().any(|path| matches!(document.get(path), Some(Bson::Array(_))))
            };
            if model.values().filter(|document| condition.holds(document)).all(plain) {
                modify(engine, model, condition, doc! { "$push": { "c": value } }, |document| match document
                    .entry("c".to_owned())
                    .or_insert(Bson::Array(Vec::new()))
                {
                    Bson::Array(list) => list.push(Bson::Int32(*value)),
                    other => unreachable!("{other} is no array"),
                });
            }
        }
        Step::Delete(condition) => {
            let query = Query::new(Filter::parse(&condition.to_filter()).expect("a filter"));
            let deleted = engine.write(move |transaction| transaction.delete("c", &query)).expect("delete");
            let before = model.len();
            model.retain(|_, document| !condition.holds(document));
            assert_eq!(deleted as usize, before - model.len());
        }
        Step::Index(paths) => {
            engine.create_index("c", IndexSpec::on(paths).expect("a spec")).expect("index");
        }
        Step::DropIndex => {
            let name = engine.indexes("c").expect("indexes").into_iter().find_map(|index| index.spec);
            if let Some(spec) = name {
                engine.drop_index("c", &spec.name).expect("drop");
            }
        }
        Step::Find(condition, sort, limit) => find(engine, model, condition, *sort, *limit),
    }
}

fn modify(
    engine: &Engine,
    model: &mut Model,
    condition: &Condition,
    change: Document,
    apply: impl Fn(&mut Document),
) {
    let query = Query::new(Filter::parse(&condition.to_filter()).expect("a filter"));
    let change = Update::parse(&change).expect("an update");
    let updated =
        engine.write(move |transaction| transaction.update("c", &query, &change, false)).expect("update");
    let mut matched = 0;
    for document in model.values_mut().filter(|document| condition.holds(document)) {
        matched += 1;
        apply(document);
    }
    assert_eq!(updated.matched, matched);
}

fn find(
    engine: &Engine,
    model: &Model,
    condition: &Condition,
    sort: Option<(&str, i32)>,
    limit: Option<usize>,
) {
    let filter = condition.to_filter();
    let order = sort.map_or_else(Document::new, |(path, direction)| doc! { path: direction });
    let query = Query { limit, ..Query::parse(&filter, &order, &doc! {}).expect("a query") };
    let found: Vec<Document> = engine
        .find("c", &query)
        .expect("find")
        .iter()
        .map(|document| Document::try_from(document).expect("a document"))
        .collect();
    let matching: Vec<&Document> = model.values().filter(|document| condition.holds(document)).collect();
    let expected = limit.map_or(matching.len(), |limit| limit.min(matching.len()));
    assert_eq!(found.len(), expected, "{filter} sorted by {order}, limit {limit:?}");
    let mut seen = std::collections::BTreeSet::new();
    for document in &found {
        assert!(matching.contains(&document), "{filter} found {document}");
        assert!(seen.insert(document.get_i32("_id").expect("an _id")), "{filter} found {document} twice");
    }
    if let Some((path, direction)) = sort {
        // The extreme element of an array, null below numbers, an empty array below null.
        let place = |document: &Document| -> i32 {
            let value = |value: &Bson| value.as_i32().unwrap_or(-1);
            match document.get(path) {
                None => -1,
                Some(Bson::Array(list)) if direction > 0 => list.iter().map(value).min().unwrap_or(-2),
                Some(Bson::Array(list)) => list.iter().map(value).max().unwrap_or(-2),
                Some(other) => value(other),
            }
        };
        let mut places: Vec<i32> = matching.iter().map(|document| place(document) * direction).collect();
        places.sort_unstable();
        places.truncate(expected);
        let found: Vec<i32> = found.iter().map(|document| place(document) * direction).collect();
        assert_eq!(found, places, "{filter} sorted by {order}, limit {limit:?}");
    }
    let count = engine.count("c", &Query::new(Filter::parse(&filter).expect("a filter"))).expect("count");
    assert_eq!(count as usize, matching.len(), "count of {filter}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn engine_agrees_with_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        on_every_store(|engine| {
            engine.create_collection("c").expect("create");
            let mut model = Model::new();
            for step in &steps {
                run(engine, &mut model, step);
            }
            let validation = engine.validate("c").expect("validate");
            assert_eq!((validation.documents as usize, validation.faults), (model.len(), Vec::new()));
        });
    }
}
