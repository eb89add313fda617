//! The foreground queue of one environment: one command at a time, first come first served, a bounded number waiting.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A queue; one per environment.
#[derive(Debug)]
pub struct Queue {
    waiting_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: bool,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to execute. Dropping it calls the next in line.
#[derive(Debug)]
pub struct Turn {
    queue: Option<Arc<Queue>>,
}

/// A place in the line.
#[derive(Debug)]
pub enum Place {
    /// Nobody is before: it is this one's turn.
    First(Turn),
    /// Others are before. Dropping the receiver gives the place up.
    Waiting(oneshot::Receiver<Turn>),
}

/// Nobody else may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many wait.
    pub waiting: usize,
}

impl Queue {
    /// A queue in which at most `waiting_max` wait.
    #[must_use]
    pub fn new(waiting_max: usize) -> Arc<Self> {
        Arc::new(Self { waiting_max, state: Mutex::default() })
    }

    /// Takes a place.
    ///
    /// # Errors
    /// [`Full`] when as many wait as may.
    pub fn enter(self: &Arc<Self>) -> Result<Place, Full> {
        let mut state = self.lock();
        if !state.busy {
            state.busy = true;
            return Ok(Place::First(Turn { queue: Some(Arc::clone(self)) }));
        }
        state.waiting.retain(|sender| !sender.is_closed());
        if state.waiting.len() >= self.waiting_max {
            return Err(Full { waiting: state.waiting.len() });
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        Ok(Place::Waiting(receiver))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        let mut state = queue.lock();
        while let Some(next) = state.waiting.pop_front() {
            match next.send(Turn { queue: Some(Arc::clone(&queue)) }) {
                Ok(()) => return,
                // It gave its place up: its turn must not come back here, or the lock would be taken twice.
                Err(mut turn) => turn.queue = None,
            }
        }
        state.busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(place: Place) -> oneshot::Receiver<Turn> {
        match place {
            Place::Waiting(receiver) => receiver,
            Place::First(_) => panic!("somebody is before"),
        }
    }

    #[test]
    fn turns_come_in_order_and_places_that_were_given_up_are_skipped() {
        let queue = Queue::new(3);
        let Ok(Place::First(first)) = queue.enter() else { panic!("it is empty") };
        let mut second = waiting(queue.enter().unwrap());
        let third = waiting(queue.enter().unwrap());
        let mut fourth = waiting(queue.enter().unwrap());
        assert_eq!(queue.enter().unwrap_err(), Full { waiting: 3 });
        drop(third);
        assert!(second.try_recv().is_err());
        drop(first);
        let turn = second.try_recv().unwrap();
        assert!(fourth.try_recv().is_err());
        drop(turn);
        drop(fourth.try_recv().unwrap());
        assert!(matches!(queue.enter(), Ok(Place::First(_))));
    }

    #[test]
    fn a_turn_that_arrived_unseen_is_passed_on() {
        let queue = Queue::new(2);
        let Ok(Place::First(first)) = queue.enter() else { panic!("it is empty") };
        let second = waiting(queue.enter().unwrap());
        let mut third = waiting(queue.enter().unwrap());
        drop(first);
        drop(second);
        assert!(third.try_recv().is_ok());
    }

    #[test]
    fn a_place_given_up_makes_room() {
        let queue = Queue::new(1);
        let _first = queue.enter().unwrap();
        drop(waiting(queue.enter().unwrap()));
        assert!(queue.enter().is_ok());
    }
}
