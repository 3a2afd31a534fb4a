/* The round protocol (docs/protocol.md 2 to 5) as a model for the model checker spin. docs/model.md says what it covers
 * and what it omits; model_test.cc runs it.
 *
 * One job, N launchers and one server, which may end and be restarted. spin tries every order of their steps,
 * within the bounds below. Assertions and labels are numbered as in docs/model.md. */

#ifndef N
#define N 2 /* launchers */
#endif
#ifndef MIN
#define MIN 2 /* nodes */
#endif
#ifndef MAX
#define MAX 2
#endif
#ifndef RECORDS
#define RECORDS 1 /* the server keeps records */
#endif
#ifndef RESTARTS
#define RESTARTS 1 /* max restarts */
#endif
#ifndef REFORM
#define REFORM 0 /* launchers whose workers can re-form (protocol 3.8): bit i for launcher i */
#endif
/* How often something may happen. */
#ifndef FAILURES
#define FAILURES 1 /* a worker fails */
#endif
#ifndef CUTS
#define CUTS 1 /* a launcher is cut off from the server */
#endif
#ifndef CRASHES
#define CRASHES 1 /* the server ends */
#endif
#ifndef DEATHS
#define DEATHS 0 /* a launcher is killed */
#endif
#ifndef LEAVES
#define LEAVES 0 /* a launcher leaves voluntarily (protocol 4.2) */
#endif
#ifndef REPEATS
#define REPEATS 0 /* a message arrives twice */
#endif

/* Messages. */
#define JOIN 1
#define FAILED 2
#define SUCCEEDED 3
#define READY 4
#define END 5 /* of the stream: the launcher's process has ended */
#define ASSIGN 6
#define STOP 7
#define FINISH 8
#define LEAVING 9 /* phase: true if it has workers, which it stops */

/* State of a launcher's workers, and of a node at the server (protocol 4.3). */
#define GONE 0 /* no member */
#define IDLE 1
#define RUNNING 2
#define DONE 3 /* all workers have succeeded */
#define STOPPING 4
#define EXITED 5 /* launchers only: after the verdict */
#define DEAD 6   /* launchers only */
#define LEFT 7   /* launchers only: it stops its workers */

/* The job's states, as rendezvous/core/job_state.h has them; the last call is part of WAIT. */
#define WAIT 0
#define LEAVE 1
#define RUN 2
#define RECOVER 3
#define OVER 4

/* Decisions of the server on an event; the first two are also verdicts. */
#define SUCCEED 1
#define FAIL 2
#define LEAVE_ROUND 3

/* A message: kind, incarnation, phase, round, rank, nodes of the round, world, survivors (STOP, ASSIGN: workers are
 * kept), in touch. */
chan up[N] = [6] of { byte, byte, byte, byte, byte, byte, byte, bit, bit };
chan down[N] = [5] of { byte, byte, byte, byte, byte, bit };

/* ---- launchers */
byte phase[N] = IDLE;
byte last[N];        /* last round that it accepted */
byte incarnation[N];
bit open[N];         /* it has a stream */
bit cut[N];          /* nothing passes, in either direction */
bit lease[N];        /* it may rely on the server, and the server must expect its workers (protocol 4.5) */
byte world[N];       /* of its workers; 0: none */
byte took[N];        /* world of its last round */
byte place[N];       /* its rank */
byte size[N];        /* nodes of its round */
byte verdict[N];
bit keeps[N];        /* its stopping workers will be suspended */
bit suspended[N];    /* its workers are suspended and can continue in the next round */
bit touch[N];        /* 4.5: no round was assigned without it since its last one */

/* ---- the server */
byte job = WAIT;
byte round;          /* last round that it assigned or resumed */
byte known;          /* highest round in any message */
byte nodes;          /* of that round */
byte its_world;
byte member[N];      /* GONE, IDLE ... */
bit connected[N];
byte heard[N];       /* newest incarnation */
byte node_round[N];
byte rank[N];        /* in the last round, from 1; 0: none */
byte recorded[N];    /* the same, of all nodes to which the round was assigned */
bit left_since[N];   /* one of those, and gone */
bit fenced[N];       /* gone, and may have workers */
bit unknown = 1;     /* unknown nodes may have workers */
bit left;            /* the round is to be left */
bit left_before;     /* the same, before the server was restarted */
bit failed_once;     /* a worker failed while the server recovers */
byte succeeded;
byte restarts;
byte result;         /* of the job */
bit survivors[N];    /* 3.8: workers of an idle node are suspended */
bit plain[N];        /* it had workers that cannot re-form */
bit in_touch[N];
bit goes_on[N];      /* its survivors continue in the round */
byte given;          /* last round known to have been assigned */

/* ---- persisted by the server */
byte kept_round, kept_known, kept_nodes, kept_world, kept_restarts, kept_result, kept_given;
byte kept_rank[N];
bit kept_gone[N], kept_fenced[N];
bit kept_left;

/* ---- ghost variables */
byte worlds;         /* worlds ever assigned */
byte charged;        /* restarts */
byte highest;        /* highest round that a launcher accepted */
byte failures, cuts, crashes, deaths, repeats, leaves;
byte outcome;        /* first verdict sent */
bit resumed[N];      /* its workers are those of the previous round */
bit restarted[N];    /* they are new, and those of the previous round could not re-form */
byte assigned;       /* launchers of the last assigned round */
byte i_, j_, k_, n_; /* of loops */
bit ok_;
byte decision;
bit takes_part[N];

/* ================ the server ================ */

inline keep() {
  kept_round = round; kept_known = known; kept_nodes = nodes; kept_world = its_world;
  kept_restarts = restarts; kept_result = result; kept_left = left; kept_given = given;
  for (k_ : 0 .. N - 1) {
    kept_rank[k_] = recorded[k_]; kept_gone[k_] = left_since[k_]; kept_fenced[k_] = fenced[k_];
  }
}

/* A message to a closed stream is lost. */
inline tell(i, kind, r, rk, size_, w, keep_) {
  if
  :: open[i] && incarnation[i] == heard[i] -> down[i] ! kind, r, rk, size_, w, keep_
  :: else
  fi
}

inline count_members() {
  n_ = 0;
  for (k_ : 0 .. N - 1) {
    if :: member[k_] != GONE -> n_++ :: else fi
  }
}

/* True if the condition holds for some node i. */
#define OF(i, condition) (i < N && (condition))
#define AT(i) (i < N -> i : 0)
/* 3.8: stopped workers may be kept. */
#define CAN_REFORM(i) ((REFORM >> i) & 1)
#define PLAIN(i) OF(i, rank[AT(i)] && plain[AT(i)])
#define KEEP(i) (REFORM && rank[i] && node_round[i] == round && !PLAIN(0) && !PLAIN(1) && !PLAIN(2))

inline stop_all() {
  for (k_ : 0 .. N - 1) {
    if
    :: member[k_] == RUNNING || member[k_] == DONE ->
      tell(k_, STOP, node_round[k_], 0, 0, 0, KEEP(k_));
      member[k_] = STOPPING;
      survivors[k_] = 0
    :: else
    fi
  }
}

#define HERE(i) OF(i, member[AT(i)] != GONE)
#define MEMBERS (HERE(0) + HERE(1) + HERE(2))
#define IS_READY(i) OF(i, member[AT(i)] == IDLE && connected[AT(i)])
/* 4.5: it may have workers without reporting to the server. */
#ifdef MISTAKE_NO_FENCE
#define MAY_RUN(i) 0
#else
#define MAY_RUN(i) ((fenced[i] || (unknown && member[i] == GONE)) && lease[i])
#endif
#define DELAYS(i) \
  OF(i, member[AT(i)] > IDLE || (member[AT(i)] == IDLE && !connected[AT(i)] && rank[AT(i)]) || MAY_RUN(AT(i)))
/* 3.3: the next round may start. */
#define MAY_ASSIGN \
  (job == LEAVE && IS_READY(0) + IS_READY(1) + IS_READY(2) >= MIN && !DELAYS(0) && !DELAYS(1) && !DELAYS(2))
#define UNHEARD(i) OF(i, !heard[AT(i)] && lease[AT(i)])
#define LEASED(i) OF(i, member[AT(i)] == GONE && lease[AT(i)])

/* 3.3: nodes of the last round take part, then those in touch, then others: n_ in all. */
inline choose() {
  j_ = 0;
  for (i_ : 0 .. 2) {
    for (k_ : 0 .. N - 1) {
      if :: i_ == 0 -> takes_part[k_] = 0 :: else fi;
      if
      :: IS_READY(k_) && !takes_part[k_] && j_ < n_ && (rank[k_] || i_ == 2 || (i_ == 1 && in_touch[k_])) ->
        takes_part[k_] = 1;
        j_++
      :: else
      fi
    }
  }
}

/* 3.8: its workers missed a round. Its Join may be outdated. */
#if defined(MISTAKE_KEEPS_OUTDATED)
#define MISSED(i) 0
#elif defined(MISTAKE_TRUSTS_LATE_JOIN)
#define MISSED(i) (!rank[i] && !in_touch[i])
#else
#define MISSED(i) (!rank[i] && (!in_touch[i] || node_round[i] < given))
#endif

/* 3.8: survivors that cannot continue are stopped, and the round waits; ok_: there are none. */
inline stop_survivors() {
  ok_ = 1;
#ifndef MISTAKE_KEEPS_MIXED
  for (k_ : 0 .. N - 1) {
    if :: takes_part[k_] && plain[k_] -> ok_ = 0 :: else fi
  }
#endif
  j_ = 0;
  for (k_ : 0 .. N - 1) {
    if
    :: takes_part[k_] && survivors[k_] && (!ok_ || MISSED(k_)) ->
      tell(k_, STOP, node_round[k_], 0, 0, 0, 0);
      member[k_] = STOPPING;
      survivors[k_] = 0;
      j_++
    :: else
    fi
  }
  ok_ = (j_ == 0)
}

/* 3.4: nodes of the last round first, then the others; ranks stay if they fit. */
inline assign() {
  ok_ = 0;
  if
  :: !MAY_ASSIGN
  :: else ->
    n_ = IS_READY(0) + IS_READY(1) + IS_READY(2);
    if :: n_ > MAX -> n_ = MAX :: else fi;
    choose();
    stop_survivors()
  fi;
  if
  :: !ok_
  :: else ->
    /* The participants; a rank above N means none so far. */
    j_ = 0;
    ok_ = 1;
    for (k_ : 0 .. N - 1) {
      recorded[k_] = 0;
      left_since[k_] = 0;
      if
      :: member[k_] == IDLE && connected[k_] && rank[k_] ->
        j_++;
        if :: rank[k_] > n_ -> ok_ = 0 :: else fi
      :: else -> rank[k_] = 0
      fi
    }
#ifdef MISTAKE_KEEPS_RANKS
    ok_ = 1;
#endif
    if
    :: ok_
    :: else -> /* ranks close up in their previous order */
      nodes = 0;
      for (i_ : 1 .. N) {
        for (k_ : 0 .. N - 1) {
          if :: rank[k_] == i_ -> nodes++; rank[k_] = nodes + N :: else fi
        }
      }
      for (k_ : 0 .. N - 1) {
        if :: rank[k_] > N -> rank[k_] = rank[k_] - N :: else fi
      }
    fi;
    /* Newcomers fill the gaps. */
    for (k_ : 0 .. N - 1) {
      if
      :: takes_part[k_] && !rank[k_] ->
        for (i_ : 1 .. N) {
          ok_ = (rank[k_] == 0);
          for (nodes : 0 .. N - 1) {
            if :: rank[nodes] == i_ -> ok_ = 0 :: else fi
          }
          if :: ok_ -> rank[k_] = i_ :: else fi
        }
      :: else
      fi
    }
    nodes = n_;
    round = known + 1;
    known = round;
    given = round;
    worlds++;
    its_world = worlds;
    succeeded = 0;
    left = 0;
    job = RUN;
    assert(!RECORDS || round > highest); /* 3: a round is assigned once */
    j_ = 0;
    i_ = 0;
    for (k_ : 0 .. N - 1) {
      if
      :: rank[k_] ->
        assert(rank[k_] <= nodes && !(i_ & (1 << rank[k_]))); /* 2: ranks are a permutation */
        i_ = i_ | (1 << rank[k_]);
        j_++;
        recorded[k_] = rank[k_];
        member[k_] = RUNNING;
        node_round[k_] = round;
        goes_on[k_] = survivors[k_];
        survivors[k_] = 0;
        assert(!RECORDS || !goes_on[k_] || (assigned & (1 << k_))) /* 5: it was in the previous round */
      :: else
      fi
    }
    assert(j_ == nodes);
    assigned = 0;
    for (k_ : 0 .. N - 1) {
      if :: REFORM && rank[k_] -> assigned = assigned | (1 << k_) :: else fi
    }
#ifndef MISTAKE_TELLS_BEFORE_RECORD
    keep();
#endif
    for (k_ : 0 .. N - 1) {
      if :: rank[k_] -> tell(k_, ASSIGN, round, rank[k_], nodes, its_world, goes_on[k_]) :: else fi
    }
  fi
}

/* The decision on an event; the server's last step after each. */
inline conclude() {
  if
  :: decision == LEAVE_ROUND ->
    left = 1;
    keep();
    stop_all();
    count_members();
    job = (n_ < MIN -> WAIT : LEAVE)
  :: decision == SUCCEED || decision == FAIL ->
    job = OVER;
    result = decision;
    keep();
    for (k_ : 0 .. N - 1) {
      if :: member[k_] != GONE -> tell(k_, FINISH, 0, result, 0, 0, 0) :: else fi
    }
  :: else
  fi;
  decision = 0;
  assign();
  i_ = 0; j_ = 0; k_ = 0; n_ = 0; ok_ = 0;
  for (k_ : 0 .. N - 1) {
    takes_part[k_] = 0
  }
  k_ = 0
}

/* 4.4: initial state of a server. */
inline restore(knows) {
  job = (kept_round && knows -> RECOVER : WAIT);
  if :: kept_result && knows -> job = OVER :: else fi;
  if
  :: knows ->
    round = kept_round; known = kept_known; nodes = kept_nodes; its_world = kept_world;
    restarts = kept_restarts; result = kept_result; left = kept_left;
    given = (kept_given == kept_round -> kept_given : 0)
  :: else ->
    round = 0; known = 0; nodes = 0; its_world = 0; restarts = 0; result = 0; left = 0;
    given = 0
  fi;
  left_before = left;
  unknown = (!RECORDS || round != known);
  failed_once = 0;
  succeeded = 0;
  for (k_ : 0 .. N - 1) {
    member[k_] = GONE; connected[k_] = 0; node_round[k_] = 0; rank[k_] = 0;
    survivors[k_] = 0; plain[k_] = 0; in_touch[k_] = 0; goes_on[k_] = 0;
    recorded[k_] = (knows -> kept_rank[k_] : 0);
    left_since[k_] = (knows -> kept_gone[k_] : 0);
    fenced[k_] = (knows -> kept_fenced[k_] || (kept_rank[k_] && !kept_gone[k_]) : 0)
  }
}

/* An idle node's report on its previous workers. */
inline take_survivors(i, sv) {
  survivors[i] = sv;
  plain[i] = (REFORM && node_round[i] && !CAN_REFORM(i))
}

/* The node is in no round: its report counts. */
inline take_phase(i, p, r, sv) {
  node_round[i] = r;
  survivors[i] = 0;
  if
  :: p == IDLE -> member[i] = IDLE; take_survivors(i, sv)
  :: p == STOPPING -> member[i] = STOPPING
  :: else -> member[i] = STOPPING; tell(i, STOP, r, 0, 0, 0, KEEP(i))
  fi
}

inline consider_late(i) {
  if
  :: member[i] == IDLE && nodes < MAX && !succeeded -> decision = LEAVE_ROUND
  :: else
  fi
}

inline leave_in_recovery() {
  left = 1;
  keep();
  stop_all()
}

/* 4.4: all nodes of the round have reported, or are known to be gone. */
inline complete_recovery() {
  j_ = 0;
  for (k_ : 0 .. N - 1) {
    if :: rank[k_] || (recorded[k_] && left_since[k_]) -> j_++ :: else fi
  }
  if
  :: job != RECOVER || j_ < nodes -> skip
  :: else ->
    if
    :: left -> decision = LEAVE_ROUND
    :: !left && succeeded == nodes -> decision = SUCCEED
    :: else ->
      job = RUN;
      for (i_ : 0 .. N - 1) {
        if
        :: member[i_] == IDLE && !rank[i_] && nodes < MAX && !succeeded -> decision = LEAVE_ROUND
        :: else
        fi
      }
    fi
  fi
}

inline take_report(i, p, r, rk, size_, w, sv) {
  if
  :: rank[i] -> take_phase(i, p, r, sv) /* its success is already counted */
  :: !rank[i] && (r < round || r == 0) -> /* it has not received the round */
    take_phase(i, p, r, sv);
    if
    :: recorded[i] && !rank[i] -> rank[i] = recorded[i]; left_since[i] = 0; leave_in_recovery()
    :: else
    fi
  :: else ->
    if
    :: r > round -> /* a round that is not in the record */
      stop_all();
      for (k_ : 0 .. N - 1) {
        rank[k_] = 0; recorded[k_] = 0; left_since[k_] = 0
      }
      round = r; nodes = size_; its_world = w;
      left = 0; left_before = 0; failed_once = 0; succeeded = 0
    :: else
    fi;
    rank[i] = rk;
    recorded[i] = rk;
    left_since[i] = 0;
    node_round[i] = r;
    keep();
    if :: p == RUNNING || p == STOPPING -> unknown = 0 :: else fi;
    if
    :: p == RUNNING -> member[i] = RUNNING
    :: p == DONE -> member[i] = DONE; succeeded++
    :: p == STOPPING -> member[i] = STOPPING
    :: else -> member[i] = IDLE; take_survivors(i, sv); leave_in_recovery()
    fi;
    if :: left -> stop_all() :: else fi
  fi;
  complete_recovery()
}

/* 4.3 */
inline reconcile(i, p, r, sv) {
  if
  :: !rank[i] ->
    ok_ = (member[i] == IDLE);
    take_phase(i, p, r, sv);
    if :: ok_ -> skip :: else -> consider_late(i) fi
  :: else ->
    if
    :: r < round && p == IDLE && member[i] == RUNNING ->
#ifndef MISTAKE_ASSIGNS_ONCE
      tell(i, ASSIGN, round, rank[i], nodes, its_world, goes_on[i])
#else
      skip
#endif
    :: r == round && p == RUNNING ->
      if :: member[i] == STOPPING -> member[i] = RUNNING :: else fi
    :: r == round && p == DONE ->
      if :: member[i] == RUNNING -> on_succeeded(i, r) :: else fi
    :: r == round && p == STOPPING ->
      if :: member[i] == RUNNING -> member[i] = STOPPING :: else fi
    :: else -> take_phase(i, p, r, sv); decision = LEAVE_ROUND
    fi
  fi
}

inline on_succeeded(i, r) {
  if
  :: rank[i] && member[i] == RUNNING && r == round && (job == RUN || job == RECOVER) ->
    member[i] = DONE;
    succeeded++;
    if :: job == RUN && succeeded == nodes -> decision = SUCCEED :: else fi
  :: else
  fi
}

inline on_join(i, k, p, r, rk, size_, w, sv, tc) {
  if
  :: job == OVER -> heard[i] = k; tell(i, FINISH, 0, result, 0, 0, 0)
  :: job != OVER && k <= heard[i] -> skip
  :: else ->
    heard[i] = k;
    connected[i] = 1;
    lease[i] = (phase[i] != DEAD && phase[i] != EXITED);
    fenced[i] = 0;
    in_touch[i] = tc;
    if /* a round unknown to this server */
    :: r > known -> known = r; unknown = 1; keep()
    :: else
    fi;
    if
    :: member[i] == GONE ->
      member[i] = IDLE;
      node_round[i] = r;
      if :: job == WAIT && round == 0 && r > 0 -> job = RECOVER :: else fi;
      if
      :: job == RECOVER -> take_report(i, p, r, rk, size_, w, sv)
      :: else ->
        take_phase(i, p, r, sv);
        if
        :: job == RUN -> consider_late(i)
        :: else
        fi
      fi
    :: else ->
      if
      :: job == RUN -> reconcile(i, p, r, sv)
      :: job == RECOVER ->
        if :: rank[i] && member[i] == DONE -> succeeded-- :: else fi;
        rank[i] = 0;
        member[i] = IDLE;
        survivors[i] = 0;
        take_report(i, p, r, rk, size_, w, sv)
      :: else -> take_phase(i, p, r, sv)
      fi
    fi
  fi
}

/* 3.5 */
inline on_failed(i, r) {
  if
  :: rank[i] && node_round[i] == round && r == round && (member[i] == RUNNING || member[i] == STOPPING) &&
     (job == RUN || (job == RECOVER && !left_before && !failed_once)) ->
    failed_once = (job == RECOVER);
    if
    :: restarts == RESTARTS -> decision = FAIL
    :: else ->
      restarts++;
      charged++;
      if :: job == RUN -> decision = LEAVE_ROUND :: else -> leave_in_recovery() fi
    fi
  :: else
  fi
}

inline on_ready(i, r, sv) {
  if
#ifndef MISTAKE_ANY_READY
  :: r != node_round[i] -> skip
#endif
  :: member[i] == IDLE -> take_survivors(i, sv) /* repeated */
  :: else ->
    take_survivors(i, sv);
    if :: job == RECOVER && member[i] == DONE && rank[i] -> succeeded-- :: else fi;
    member[i] = IDLE;
    if
    :: job == RUN && !rank[i] -> consider_late(i)
    :: job == RUN && rank[i] -> decision = LEAVE_ROUND
    :: job == RECOVER && rank[i] -> leave_in_recovery()
    :: else
    fi
  fi
}

/* 4.1. `silent`: its stream is still open as far as the server knows. */
inline lose(i, silent) {
  if :: silent && (member[i] == RUNNING || member[i] == STOPPING) -> fenced[i] = 1 :: else fi;
  ok_ = (rank[i] && member[i] != DONE);
  if :: ok_ && job != RECOVER -> left_since[i] = 1 :: else fi;
  if :: ok_ || job != RECOVER -> rank[i] = 0 :: else fi;
  member[i] = GONE;
  connected[i] = 0;
  survivors[i] = 0; plain[i] = 0; in_touch[i] = 0; goes_on[i] = 0;
#ifndef MISTAKE_FORGETS_INCARNATIONS
  if :: fenced[i] -> skip :: else -> heard[i] = 0 fi;
#else
  heard[i] = 0;
#endif
  count_members();
  if
  :: job == OVER -> skip
  :: job != OVER && n_ == 0 ->
    /* All nodes are gone: the verdict reached none, and returning nodes continue the job. */
    for (k_ : 0 .. N - 1) {
      left_since[k_] = 0
    }
    keep();
    restore(1)
  :: else ->
    if
    :: job == LEAVE && n_ < MIN -> job = WAIT
    :: job == RUN && ok_ -> decision = LEAVE_ROUND
    :: else
    fi
  fi
}

/* The server receives nothing on the node's stream. */
#define UNREACHABLE(i) (!connected[i] || !open[i] || cut[i] || incarnation[i] != heard[i])

/* 4.2: a loss without delay. The end of its stream means that its workers or its lease have ended. */
inline on_leave(i, has_workers) {
#ifndef MISTAKE_LEAVES_UNFENCED
  if :: has_workers && (member[i] == RUNNING || member[i] == STOPPING) -> fenced[i] = 1 :: else fi;
#endif
  lose(i, 0)
}

/* An idle node may be silent for longer than any lease. */
#define COUNTS(i) (REFORM && member[i] == IDLE && connected[i] && lease[i])

/* Messages and silence of one launcher. */
proctype stream(byte me) {
  byte kind, k, p, r, rk, s, w;
  bit sv, tc;
end:
  do
  :: atomic {
       !cut[me] && nempty(up[me]) ->
       up[me] ? kind, k, p, r, rk, s, w, sv, tc;
       d_step {
         if /* a stream that the server has closed is not read */
         :: kind == JOIN -> on_join(me, k, p, r, rk, s, w, sv, tc)
         :: kind == END && k == heard[me] && member[me] == GONE && job != OVER -> fenced[me] = 0 /* it had left */
         :: kind != JOIN && (k != heard[me] || (member[me] == GONE && kind != END) || job == OVER) -> skip
         :: else ->
           if
           :: kind == END -> connected[me] = 0
           :: kind == FAILED -> on_failed(me, r)
           :: kind == SUCCEEDED -> on_succeeded(me, r)
           :: kind == READY -> on_ready(me, r, sv)
           :: kind == LEAVING -> on_leave(me, p)
           fi
         fi;
         conclude();
         kind = 0; k = 0; p = 0; r = 0; rk = 0; s = 0; w = 0; sv = 0; tc = 0
       }
     }
  :: atomic {
       job != OVER && member[me] != GONE && UNREACHABLE(me) && !COUNTS(me) ->
       d_step {
         if :: connected[me] -> tell(me, END, 0, 0, 0, 0, 0) :: else fi;
         lose(me, connected[me]);
         conclude()
       }
     }
  od
}

inline say(i, kind, p, r, rk, s, w) {
  if
  :: open[i] -> up[i] ! kind, incarnation[i], p, r, rk, s, w, suspended[i], (kind == JOIN && touch[i])
  :: else
  fi
}

inline clear_up(i) {
  do
  :: nempty(up[i]) -> up[i] ? _, _, _, _, _, _, _, _, _
  :: empty(up[i]) -> break
  od;
  skip
}

inline hang_up(i) {
  open[i] = 0;
  cut[i] = 0;
  do
  :: nempty(down[i]) -> down[i] ? _, _, _, _, _, _
  :: empty(down[i]) -> break
  od;
  skip
}

proctype server() {
end:
  do
  :: atomic { /* 3.2 */
       job == WAIT && MEMBERS >= MIN ->
       d_step { job = LEAVE; conclude() }
     }
  :: atomic { /* the fence opens */
       MAY_ASSIGN ->
       d_step { conclude() }
     }
  :: d_step { /* 4.5: nodes whose workers ran before this server have joined, or stopped them */
       unknown && !UNHEARD(0) && !UNHEARD(1) && !UNHEARD(2) -> unknown = 0
     }
  :: atomic { /* 4.4: the time for reports, which is longer than any lease, has passed */
       job == RECOVER && MEMBERS > 0 && !LEASED(0) && !LEASED(1) && !LEASED(2) ->
       d_step { decision = LEAVE_ROUND; conclude() }
     }
  :: atomic { /* 3.1 */
       timeout && job == WAIT && MEMBERS > 0 ->
       d_step { decision = FAIL; conclude() }
     }
  :: atomic { /* the server ends and is restarted */
       crashes < CRASHES ->
       d_step {
         crashes++;
         for (k_ : 0 .. N - 1) {
           hang_up(k_);
           clear_up(k_);
           heard[k_] = 0
         }
         restore(RECORDS);
         k_ = 0
       }
     }
  od
}

/* ================ launchers ================ */

inline check_worlds(i) {
  for (k_ : 0 .. N - 1) {
    if
    :: k_ != i && world[k_] ->
      assert(world[k_] == world[i]); /* 1: never two worlds at once */
      assert(place[k_] != place[i]); /* 2: no rank is given twice */
      assert(!(resumed[k_] && restarted[i]) && !(resumed[i] && restarted[k_])) /* 5: all workers are kept, or none */
    :: else
    fi
  }
}

inline lose_workers(i) {
  world[i] = 0; keeps[i] = 0; suspended[i] = 0; resumed[i] = 0; restarted[i] = 0
}

proctype launcher(byte me) {
  byte kind, r, rk, s, w;
  byte old_kind, old_k, old_p, old_r;
  bit keep_, touch_;
  do
  :: atomic { /* connects; a message of an earlier stream may be overtaken */
       !open[me] && phase[me] < EXITED ->
       d_step { open[me] = 1; incarnation[me]++ };
       if
       :: say(me, JOIN, phase[me], last[me], place[me], size[me], took[me])
       :: len(up[me]) == 1 ->
         up[me] ? old_kind, old_k, old_p, old_r, _, _, _, keep_, touch_;
         say(me, JOIN, phase[me], last[me], place[me], size[me], took[me]);
         up[me] ! old_kind, old_k, old_p, old_r, 0, 0, 0, keep_, touch_;
         old_kind = 0; old_k = 0; old_p = 0; old_r = 0; keep_ = 0; touch_ = 0
       fi
     }
  :: atomic {
       open[me] && !cut[me] && nempty(down[me]) ->
       down[me] ? kind, r, rk, s, w, keep_;
       d_step {
         if
         :: kind == ASSIGN ->
           if
           :: phase[me] == IDLE && r > last[me] ->
             assert(keep_ || !suspended[me]); /* 5: the server knows of all survivors */
             resumed[me] = suspended[me];
             restarted[me] = (REFORM && last[me] && !CAN_REFORM(me));
             suspended[me] = 0;
             touch[me] = (REFORM > 0);
             last[me] = r; place[me] = rk; size[me] = s; world[me] = w; took[me] = w;
             phase[me] = RUNNING;
             if :: r > highest -> highest = r :: else fi;
             check_worlds(me)
#ifndef MISTAKE_DROPS_ASSIGN
           :: phase[me] == STOPPING && r > last[me] -> /* survivors: as if the new workers had ended at once */
             last[me] = r; place[me] = rk; size[me] = s; took[me] = w;
             if :: r > highest -> highest = r :: else fi
#endif
           :: else
           fi
         :: kind == STOP ->
           if
           :: r < last[me] || phase[me] == LEFT -> skip
           :: r >= last[me] && phase[me] == STOPPING -> keeps[me] = keeps[me] && keep_
           :: r >= last[me] && phase[me] == RUNNING -> phase[me] = STOPPING; keeps[me] = keep_ && CAN_REFORM(me)
#ifndef MISTAKE_IGNORES_KEEP
           :: r >= last[me] && suspended[me] && !keep_ -> suspended[me] = 0; phase[me] = STOPPING
#endif
           :: else -> phase[me] = IDLE; say(me, READY, 0, r, 0, 0, 0)
           fi
         :: kind == END -> hang_up(me)
         :: kind == FINISH ->
           verdict[me] = rk;
           assert(!RECORDS || !outcome || outcome == rk); /* 4: all receive the same verdict */
           outcome = rk;
           phase[me] = EXITED; lose_workers(me); lease[me] = 0; touch[me] = 0;
           hang_up(me);
           clear_up(me)
         fi;
         k_ = 0;
         kind = 0; r = 0; rk = 0; s = 0; w = 0; keep_ = 0
       }
     }
  :: d_step {
       phase[me] == RUNNING && failures < FAILURES ->
       failures++;
       phase[me] = STOPPING;
       say(me, FAILED, 0, last[me], 0, 0, 0)
     }
  :: d_step {
       phase[me] == RUNNING ->
       phase[me] = DONE;
       lose_workers(me);
       say(me, SUCCEEDED, 0, last[me], 0, 0, 0)
     }
  :: d_step { /* its workers have ended, or are suspended */
       phase[me] == STOPPING ->
       phase[me] = IDLE;
       suspended[me] = keeps[me];
       world[me] = 0; keeps[me] = 0; resumed[me] = 0; restarted[me] = 0;
       say(me, READY, 0, last[me], 0, 0, 0)
     }
  :: d_step { /* a suspended worker dies */
       suspended[me] && failures < FAILURES ->
       failures++;
       suspended[me] = 0;
       say(me, READY, 0, last[me], 0, 0, 0)
     }
  :: d_step { cuts < CUTS && open[me] && !cut[me] -> cuts++; cut[me] = 1 }
  :: cut[me] -> cut[me] = 0
  :: atomic { /* it resets its silent stream: its messages may arrive late, or never */
       cut[me] ->
#ifdef MISTAKE_ENDS_AT_RESET
       say(me, END, 0, 0, 0, 0, 0);
#endif
       d_step { hang_up(me) };
       if
       :: skip
       :: nempty(up[me]) -> d_step { clear_up(me) }
       fi
     }
  :: d_step { /* its lease has expired: no worker is left, and later messages are too late */
       lease[me] && (cut[me] || !open[me]) && phase[me] != EXITED && phase[me] != DEAD ->
       lease[me] = 0;
       touch[me] = 0;
       if
       :: phase[me] == RUNNING || phase[me] == STOPPING ->
         keep_ = (phase[me] == RUNNING && CAN_REFORM(me)) || keeps[me];
         phase[me] = IDLE;
         lose_workers(me);
         suspended[me] = keep_;
         keep_ = 0
       :: phase[me] == LEFT -> lose_workers(me)
       :: else
       fi;
#ifndef MISTAKE_LATE_ASSIGN
       hang_up(me)
#else
       cut[me] = 0
#endif
     }
  :: d_step {
       leaves < LEAVES && open[me] && phase[me] < EXITED ->
       leaves++;
       say(me, LEAVING, (phase[me] == RUNNING || phase[me] == STOPPING), 0, 0, 0, 0);
       phase[me] = LEFT;
       keeps[me] = 0;
       suspended[me] = 0
     }
  :: d_step { /* it is killed, or its workers have ended after it left */
       phase[me] == LEFT || (deaths < DEATHS && phase[me] < EXITED) ->
       if :: phase[me] == LEFT -> skip :: else -> deaths++ fi;
       phase[me] = DEAD;
       lose_workers(me);
       lease[me] = 0;
       touch[me] = 0;
       if :: cut[me] -> clear_up(me) :: else -> say(me, END, 0, 0, 0, 0, 0) fi;
       hang_up(me)
     }
  :: d_step { /* a message arrives twice */
       repeats < REPEATS && open[me] && len(up[me]) == 1 && !up[me] ? [JOIN, _, _, _, _, _, _, _, _] ->
       repeats++;
       up[me] ? old_kind, old_k, old_p, r, rk, s, w, keep_, touch_;
       up[me] ! old_kind, old_k, old_p, r, rk, s, w, keep_, touch_;
       up[me] ! old_kind, old_k, old_p, r, rk, s, w, keep_, touch_;
       old_kind = 0; old_k = 0; old_p = 0; r = 0; rk = 0; s = 0; w = 0; keep_ = 0; touch_ = 0
     }
  :: d_step {
       repeats < REPEATS && open[me] && len(down[me]) == 1 ->
       repeats++;
       down[me] ? kind, r, rk, s, w, keep_;
       down[me] ! kind, r, rk, s, w, keep_;
       down[me] ! kind, r, rk, s, w, keep_;
       kind = 0; r = 0; rk = 0; s = 0; w = 0; keep_ = 0
     }
  :: phase[me] == EXITED || phase[me] == DEAD -> break
  od
}

init {
  atomic {
    run server();
    for (i_ : 0 .. N - 1) {
      run stream(i_);
      run launcher(i_)
    }
    i_ = 0
  }
}
